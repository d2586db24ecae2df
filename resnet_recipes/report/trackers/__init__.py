"""Trackers: they send what a run records to TensorBoard, Weights & Biases, MLflow or a CSV file."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from resnet_recipes.base.errors import Problem
from resnet_recipes.base.extras import remedy
from resnet_recipes.report.trackers.background import Background
from resnet_recipes.report.trackers.base import Tracker

#: Each tracker with the package that it needs and the extra that installs it. The file of its name
#: has its class, Curves, and is imported when it is needed.
TRACKERS = {
    "tensorboard": ("tensorboardX", "tensorboard"),
    "wandb": ("wandb", "wandb"),
    "mlflow": ("mlflow", "mlflow"),
    "csv": ("csv", ""),
}

_FILES = {name: name for name in TRACKERS}


def problems(names: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each tracker that is unknown, with a key relative to `log`."""
    for name in names:
        if name not in TRACKERS:
            rule = f"must be one of {', '.join(TRACKERS)}"
            yield Problem("to", name, rule, "'log.to=[tensorboard]'")


def lacking(names: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each tracker whose package is not installed on this machine."""
    for name in names:
        package, extra = TRACKERS[name]
        if find_spec(package) is None:
            yield Problem("log.to", name, f"needs the package {package}", remedy(extra))


def opened(names: Sequence[str], folder: Path, settings: Mapping[str, object]) -> list[Background]:
    """Return the trackers of a run, each in its own thread.

    There it can neither slow nor stop training. `settings` are the run's hyperparameters.
    """
    return [
        Background(name, partial(_open, name, folder), settings) for name in dict.fromkeys(names)
    ]


def _open(name: str, folder: Path) -> Tracker:
    return import_module(f"resnet_recipes.report.trackers.{_FILES[name]}").Curves(folder)
