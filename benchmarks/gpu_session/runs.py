"""Runs of a recipe on one batch in memory, without Hydra, and the time of their steps."""

import time
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path

import torch
import yaml
from torch import Tensor

from resnet_recipes.data.base import DataFacts, RawBatch
from resnet_recipes.doctor.rates import wait_for_device
from resnet_recipes.methods import ORDER
from resnet_recipes.planning import roofline
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.build import build_recipe
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.training.build import build
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.loop import train
from resnet_recipes.training.measurement import TimingReporter
from resnet_recipes.training.precision import resolve_dtype
from resnet_recipes.training.run import Run

CLASSES = 1000
RECIPES = Path(__file__).parents[2] / "recipes"

#: Changes that remove all methods of a recipe.
NO_METHODS = {cls.name: None for cls in ORDER}

#: Function that trains a number of steps, without waiting for the last.
Steps = Callable[[int], None]


def find_gpu(device: torch.device) -> roofline.GpuDatasheet | None:
    """Return the datasheet of a device, if there is one."""
    return (
        roofline.find_datasheet(torch.cuda.get_device_name(device))
        if device.type == "cuda"
        else None
    )


def choose_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype that the recipes would use.

    On a CPU it is bf16, so that mixed dtypes are also tested there.
    """
    return resolve_dtype("auto" if device.type == "cuda" else "bf16", device)


def make_recipe(name: str, size: int, batch: int, quick: bool, **changes: object) -> Recipe:
    """Return a packaged recipe for images of one size.

    Changes update its sections, and None removes a method.
    """
    tree = yaml.safe_load((RECIPES / f"{name}.yaml").read_text())
    tree["methods"] |= {"progressive_resizing": None} | changes.pop("methods", {})
    tree["methods"] = {key: value for key, value in tree["methods"].items() if value is not None}
    tree["data"] |= {"backend": "synthetic", "train_size": size}
    tree["batch"] = {"global_size": batch, "bn_size": batch}
    tree |= {"max_duration": "10000ba", "scale_schedule_ratio": 1.0, "published": []}
    tree["schedule"]["warmup"] = "10ba"
    tree["log"] = tree["evaluation"] = {"interval": "10000ba"}
    tree["model"] |= {"name": "resnet18"} if quick else {}
    for section, values in changes.items():
        tree[section] = tree.get(section, {}) | values
    recipe, problems = build_recipe(tree)
    assert not problems, problems
    return recipe


class OneBatchLoader:
    """A loader of one batch, on the device."""

    skipped = ()

    def __init__(self, size: int, batch: int, device: torch.device):
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(
            0, 256, (batch, size, size, 3), dtype=torch.uint8, generator=generator
        )
        labels = torch.randint(0, CLASSES, (batch,), generator=generator)
        self.batch = RawBatch(pixels.to(device).permute(0, 3, 1, 2), labels.to(device))

    def batches(self, *_: object) -> Iterator[RawBatch]:
        """Yield the batch forever, for any arguments."""
        return repeat(self.batch)

    def close(self) -> None:
        """Do nothing, because nothing is open."""


class LimitedReporter(TimingReporter):
    """A reporter that stops training after some steps and keeps only the losses."""

    def __init__(self, steps: int):
        super().__init__(torch.device("cpu"), 0.0)
        self.losses: list[Tensor] = []
        self._steps = steps

    def is_stop_requested(self) -> bool:
        """Return whether this step is the last."""
        return len(self.losses) + 1 >= self._steps

    def step(self, done: int, losses: Tensor) -> None:
        """Keep the loss, on the device."""
        self.losses.append(losses.mean())


def make_facts(recipe: Recipe) -> DataFacts:
    """Return the facts of a dataset with enough images."""
    size = recipe.batch.global_size
    names = tuple(map(str, range(CLASSES)))
    return DataFacts("synthetic", Path("memory"), 10_000 * size, size, names)


def make_run(
    recipe: Recipe,
    device: torch.device,
    is_searched: bool = False,
    facts: DataFacts | None = None,
) -> Run:
    """Return a run of a recipe on one device, optionally with cuDNN benchmark mode.

    It uses a batch in memory, or the data that `facts` describe.
    """
    searches = [recipe.data.train_size] if is_searched else []
    run = build(make_plan(recipe, facts or make_facts(recipe), 1), Rank(0, 1, device), searches)
    if not facts:
        run.train_data = OneBatchLoader(recipe.data.train_size, recipe.batch.global_size, device)
    return run


def make_training_loop(run: Run) -> Steps:
    """Return our own training loop."""
    done = 0

    def take_steps(steps: int) -> None:
        nonlocal done
        done = train(run, LimitedReporter(steps), done)

    return take_steps


def time_steps(steps: Steps, count: int, device: torch.device) -> tuple[float, float]:
    """Return the seconds until the host has issued some steps, and until they are done."""
    wait_for_device(device)
    start = time.perf_counter()
    steps(count)
    issued = time.perf_counter()
    wait_for_device(device)
    return issued - start, time.perf_counter() - start
