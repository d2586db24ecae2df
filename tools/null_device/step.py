"""Count the GPU requests of a training step.

    python tools/null_device/run.py tools/null_device/step.py RECIPE [KEY=VALUE ...]

Prints one JSON object per recipe (RECIPE may be a list: mild,medium,hot): the launches of a step,
and of a step with SAM if the recipe uses SAM, waits, pageable copies, and milliseconds of CPU time;
the same with gradients replayed as CUDA graphs; and requests that could not be captured.
"""

import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from types import SimpleNamespace
from typing import TypeVar
from unittest.mock import Mock

import torch
from null_device import record, take_entries

from resnet_recipes.data.base import DataFacts, RawBatch
from resnet_recipes.ops import trial
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.compose import compose
from resnet_recipes.training import build as building
from resnet_recipes.training.distributed import read_rank
from resnet_recipes.training.loop import StepReporter, train
from resnet_recipes.training.run import Run

T = TypeVar("T")

# number of examples; first step; number of steps, including a step with SAM
BATCH, FIRST_STEP, STEPS = 256, 3, 12


def main() -> None:
    """Print an object for each recipe."""
    warnings.filterwarnings("ignore")
    for name in sys.argv[1].split(","):
        print(json.dumps({"recipe": name} | measure(name, sys.argv[2:])), flush=True)


def measure(name: str, changes: list[str]) -> dict[str, object]:
    """Return the device requests of the steps of a recipe."""
    run = make_run(name, changes)
    graphs, run.graphs = run.graphs, None
    steps = record_steps(run)
    takes_two = run.plan.extra_gradient_every > 0
    # number of launches by the first 100 characters of the kernel's name
    kernels = Counter(entry[:100] for entry in min(steps, key=len) if entry.startswith("launch"))
    facts = count_requests(steps, takes_two) | {
        "cpu_ms": measure_cpu_ms(run),
        "kernels": dict(kernels.most_common(12)),
    }
    if graphs is not None:
        run.graphs = graphs
        steps = record_steps(run)
        replayed = [step for step in steps if any(entry.endswith("launch graph") for entry in step)]
        calm = [step for step in replayed if not any("captured" in entry for entry in step)]
        facts |= {
            "replayed": count_requests(calm, takes_two) | {"cpu_ms": measure_cpu_ms(run)},
            "not_captured": list_not_captured(steps),
        }
    return facts


def count_requests(steps: list[list[str]], takes_two: bool) -> dict[str, object]:
    """Return the counts of a plain step, and of the longest step if some use two gradients."""
    plain = min(steps, key=count_launches)
    longest = max(steps, key=count_launches)
    # an entry ends with the number of bytes
    copies = [entry for entry in plain if entry.startswith("copy") and "pageable" in entry]
    facts = {
        "launches": count_launches(plain),
        "waits": count_waits(plain),
        "copies": Counter(copies),
    }
    if takes_two:
        facts |= {"sam_launches": count_launches(longest), "sam_waits": count_waits(longest)}
    return facts


def make_run(name: str, changes: list[str]) -> Run:
    """Return a run of a recipe on the null device, with a loader that repeats one pinned batch."""
    batch = f"batch.global_size={BATCH}", f"batch.bn_size={BATCH}"
    changes = ["data=/dev/null", "data.backend=synthetic", *batch, *changes]
    recipe = compose(name, changes, needs_data=False).recipe
    facts = DataFacts("synthetic", "x", 1_281_167, 50_000, tuple(map(str, range(1000))))
    size = recipe.data.train_size
    pixels = torch.empty(BATCH, size, size, 3, dtype=torch.uint8, pin_memory=True)
    distill = recipe.methods.distill
    has_outputs = distill is not None and distill.labels  # soft labels
    outputs = torch.empty(BATCH, 1000, pin_memory=True) if has_outputs else None
    labels = torch.zeros(BATCH, dtype=torch.int64, pin_memory=True)
    batch = RawBatch(pixels.permute(0, 3, 1, 2), labels, outputs)
    loader = SimpleNamespace(
        batches=lambda *_: iter(lambda: batch, None), skipped=(), close=lambda: None
    )
    building.open_rank_images = building.data.open_eval = lambda *_: loader
    # the device computes no results to compare
    trial.get_verdicts = lambda operations, *_: dict.fromkeys(operations, "")
    plan = make_plan(recipe, facts, 1, reads_teachers=False)
    return building.build(plan, read_rank("cuda"))


def record_steps(run: Run) -> list[list[str]]:
    """Return the device requests of each training step, without the first three steps."""
    with record():
        return observe_steps(run, take_entries)[3:]


def measure_cpu_ms(run: Run) -> float:
    """Return the median CPU time of a step, on all threads."""
    laps = observe_steps(run, time.process_time)
    return round(1e3 * median(b - a for a, b in pairwise(laps)), 1)


def observe_steps(run: Run, observe: Callable[[], T]) -> list[T]:
    """Take steps, and return the observation after each."""
    reporter = Mock(spec=StepReporter)
    observations = []
    reporter.is_stop_requested.side_effect = lambda: len(observations) > STEPS
    reporter.step.side_effect = lambda done, loss: observations.append(observe())
    train(run, reporter, FIRST_STEP)
    return observations


def list_not_captured(steps: list[list[str]]) -> list[str]:
    """Return the requests during a capture that a CUDA graph cannot contain."""
    entries = {entry for step in steps for entry in step if entry.startswith("captured ")}
    strange = ("wait", "pageable", "other stream")
    uncaptured = {entry for entry in entries if any(kind in entry for kind in strange)}
    uncaptured -= {"captured wait other stream"}  # torch initializes its random numbers
    return sorted(entry.removeprefix("captured ") for entry in uncaptured)


def count_launches(entries: list[str]) -> int:
    """Return the number of kernels, copies and fills."""
    return sum(entry.startswith(("launch", "copy", "fill")) for entry in entries)


def count_waits(entries: list[str]) -> dict[str, int]:
    """Return how often the host waits for each kind of request."""
    return Counter(entry for entry in entries if entry.startswith("wait"))


if __name__ == "__main__":
    main()
