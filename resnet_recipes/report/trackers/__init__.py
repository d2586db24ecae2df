"""Trackers: they send what a run records to TensorBoard, Weights & Biases, MLflow or a CSV file."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from resnet_recipes.base.errors import Problem
from resnet_recipes.base.extras import TRACKERS, remedy
from resnet_recipes.report.trackers.background import Background
from resnet_recipes.report.trackers.base import Tracker

#: The file of a tracker's name has its class, Curves, and is imported when it is needed.
_FILES = {name: name for name in TRACKERS}


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
