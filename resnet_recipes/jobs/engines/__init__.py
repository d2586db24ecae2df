"""Write a run as a job for the engines of other projects."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import yaml

#: Where the machines of a job mount the storage that keeps the runs, and perhaps the images.
STORAGE = "/storage"

#: Cores and GB of memory for each GPU, to decode its images.
CORES, MEMORY = 8, 64

#: Seconds for which torchrun waits for its ranks to save; a save may take 120.
SAVING = 150


class Allocation(NamedTuple):
    """What a job asks its engine for."""

    nodes: int
    ranks: int  # on each node, one for each GPU
    is_cpu: bool = False  # no GPUs


class Job(NamedTuple):
    """A run on machines that an engine provides."""

    run: str  # name of the run, the same whenever the job starts again
    words: Sequence[str]  # recipe=NAME and settings
    allocation: Allocation
    storage: str = ""  # a volume, a claim or the URL of a bucket, mounted at STORAGE
    extras: Sequence[str] = ()  # of the installation
    secrets: Sequence[str] = ()  # environment variables that log in somewhere

    @property
    def name(self) -> str:
        """The run's name as engines want names: lower case, digits and dashes."""
        return re.sub(r"[^a-z0-9]+", "-", self.run.lower()).strip("-")

    @property
    def command(self) -> list[str]:
        """What starts or resumes the run: our launcher on one node, else a rank of torchrun."""
        nodes, ranks, _ = self.allocation
        words = ["resnet-train", "--resume", "auto", *self.words, f"run.name={self.run}"]
        if self.storage:
            words.append(f"run.root={STORAGE}/runs")
        return words if nodes > 1 else [*words, f"gpus={ranks}"]


def format_yaml(value: object) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def make_title(recipe: str) -> str:
    """Return a name for job and run: a recipe's, with only the characters that runs may have."""
    stem = recipe.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")
    return re.sub(r"[^A-Za-z0-9_.+-]", "-", stem).lstrip("_.+-")[:100] or "run"
