"""The commands as functions, for notebooks and other programs; see `resnet_recipes.__all__`."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from resnet_recipes import data
from resnet_recipes.base.errors import RecipeError
from resnet_recipes.commands import run_folder
from resnet_recipes.commands.plan import with_start
from resnet_recipes.network.load import load as load
from resnet_recipes.planning.plan import Plan, make_plan
from resnet_recipes.process.lock import locked
from resnet_recipes.process.rank import work
from resnet_recipes.process.rank_process import RankProcess
from resnet_recipes.process.signals import Interruption, handling
from resnet_recipes.recipe import compose as composing
from resnet_recipes.recipe.compose import Composed
from resnet_recipes.recipe.library import Entry
from resnet_recipes.recipe.schema import Recipe

#: Called with each record of metrics.jsonl as it is written; a true return value saves the run and
#: ends it.
Callback = Callable[[dict[str, Any]], object]


class Trained(NamedTuple):
    """A finished or stopped run."""

    folder: Path
    summary: dict[str, Any]  # contents of summary.json; empty if the run was stopped early


def compose(recipe: str, *changes: str, **settings: object) -> Recipe:
    """Return a recipe with changes, as typed on the command line: `compose("hot", "~methods.sam", epochs=16)`.

    Raises RecipeError with every problem.
    """
    words = [*changes, *(f"{name}={value}" for name, value in settings.items())]
    return composing.compose(recipe, words, needs_data=False).recipe


def plan(recipe: Recipe, ranks: int = 1) -> Plan:
    """Return the plan of a run of `recipe` on `ranks` devices. Raises RecipeError if there can be none."""
    if problems := list(recipe.problems()):
        raise RecipeError(problems)
    return make_plan(recipe, data.measure(recipe.data), ranks)


def train(recipe: Recipe, *callbacks: Callback) -> Trained:
    """Train `recipe` in this process, on one device, and return the run.

    Progress goes to the error stream. Ctrl-C, or a notebook's stop button, saves a checkpoint; the
    command `resnet-train --resume FOLDER` continues the run.
    """
    interruption, began = Interruption(), time.monotonic()

    def notify(record: dict[str, Any]) -> None:
        for callback in callbacks:
            if callback(dict(record)):
                interruption.request("a callback asked for it")

    recipe = replace(recipe, launch=replace(recipe.launch, gpus=1))
    composed = Composed(recipe, Entry(recipe.name, Path.cwd() / "python", "python"), {}, ())
    folder = run_folder.create(composed, with_start(plan(recipe)), ["python"])
    with locked(folder), handling(interruption.receive):
        work(RankProcess(folder, 0, sys.stderr, began, interruption, _NoWatchdog(), notify))
    summary = folder / "summary.json"
    return Trained(folder, json.loads(summary.read_text()) if summary.exists() else {})


class _NoWatchdog:
    """Replaces the watchdog: no launcher watches a run in a notebook."""

    step = 0

    def beat(self, step: int, phase: str) -> None:
        """Record the number of completed steps."""
        self.step = step
