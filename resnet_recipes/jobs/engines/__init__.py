"""Write a run as a job for third-party job engines."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import yaml

#: Mount point, on a job's machines, of the storage with the runs and possibly the images.
STORAGE = "/storage"

CORES = 8  # CPU cores per GPU, to decode its images
MEMORY = 64  # GB of memory per GPU

#: Seconds that torchrun waits for its ranks to save; a save may take 120 s.
SHUTDOWN_SECONDS = 150


class Allocation(NamedTuple):
    """The resources that a job requests from its engine."""

    nodes: int
    ranks: int  # number of ranks per node, one per GPU
    is_cpu: bool = False  # run without GPUs


class Job(NamedTuple):
    """A run on machines of a job engine."""

    run: str  # name of the run, the same after every restart of the job
    arguments: Sequence[str]  # recipe=NAME and settings
    allocation: Allocation
    storage: str = ""  # a volume, a claim or the URL of a bucket, mounted at STORAGE
    extras: Sequence[str] = ()  # extras of the installation
    secrets: Sequence[str] = ()  # names of environment variables with credentials

    @property
    def name(self) -> str:
        """The run's name in the form that engines accept: lowercase letters, digits and dashes."""
        return re.sub(r"[^a-z0-9]+", "-", self.run.lower()).strip("-")

    @property
    def command(self) -> list[str]:
        """Arguments to start or resume the run: our launcher on one node, else a torchrun rank."""
        nodes, ranks, _ = self.allocation
        arguments = ["resnet-train", "--resume", "auto", *self.arguments, f"run.name={self.run}"]
        if self.storage:
            arguments.append(f"run.root={STORAGE}/runs")
        return arguments if nodes > 1 else [*arguments, f"gpus={ranks}"]


def format_yaml(value: object) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def make_title(recipe: str) -> str:
    """Return a name for a job and its run: the recipe's name with valid characters only."""
    stem = recipe.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml")
    return re.sub(r"[^A-Za-z0-9_.+-]", "-", stem).lstrip("_.+-")[:100] or "run"
