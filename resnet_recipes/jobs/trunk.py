"""`run.extends`: the trunk of another run, from which a new one goes on."""

import shlex
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import Hint, NotReadyError, NotYetError, Problem, RecipeError
from resnet_recipes.base.reading import read_bytes
from resnet_recipes.data.base import DataFacts
from resnet_recipes.network.archive import State, is_plain
from resnet_recipes.planning.make import make_plan
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.trunk import as_long, departures, durations
from resnet_recipes.recipe import frozen
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder import (
    CHECKPOINTS,
    CONFIG,
    DATA,
    EXIT,
    METRICS,
    OVERRIDES,
    SUMMARY,
)
from resnet_recipes.run_folder.lock import is_running, refuse_links
from resnet_recipes.run_folder.metrics import line, read_metrics
from resnet_recipes.training.checkpoint import Checkpoints
from resnet_recipes.training.state import DEPTH, find_changed_settings

_KEY = "run.extends"


class Trunk(NamedTuple):
    """The last state that a run has of its trunk."""

    folder: Path  # of that run
    step: int
    state: State

    def __str__(self) -> str:
        return f"{self.folder} at step {self.step:,}"

    def overrides(self) -> dict[str, str]:
        """Return the settings that were typed for that run, by key."""
        lines = read_bytes(self.folder / OVERRIDES).decode(errors="replace").splitlines()
        return {line.lstrip("~").partition("=")[0]: line for line in lines}

    def put_into(self, folder: Path, recipe: Recipe) -> None:
        """Write what a run of `recipe` would have at this step: its checkpoint, and its records."""
        checkpoints = Checkpoints(folder / CHECKPOINTS)
        checkpoints.open_for_writing()
        checkpoints.save(self.step, self.state | {"recipe": asdict(recipe)}, wait=True)
        records = read_metrics(self.folder / METRICS)
        text = "".join(line(record) for record in records if record["step"] <= self.step)
        atomic.write_text(folder / METRICS, text)


def trunk_of(plan: Plan) -> Trunk | None:
    """Return what a new run goes on from; None if it begins by itself.

    Raises RecipeError if the other run does not begin like this one, NotYetError if its trunk may
    still come, and NotReadyError if it does not.
    """
    run = plan.recipe.run
    if not run.extends:
        return None
    folder = Path(run.root, run.extends)
    if not (folder / CONFIG).is_file():
        raise NotYetError.of(_KEY, run.extends, f"there is no run {folder} yet")
    refuse_links(folder)
    recipe = frozen.read(folder / CONFIG)
    facts = DataFacts.read(folder / DATA, recipe.data.root)
    began = make_plan(recipe, facts, plan.world_size, reads_teachers=False)
    RecipeError.refuse(_differences(folder, began, plan))
    checkpoints = Checkpoints(folder / CHECKPOINTS)
    end = min(began.trunk, plan.trunk)
    found = checkpoints.newest(end)
    has_ended = (folder / EXIT).exists() and not is_running(folder)
    if not has_ended and (found is None or (found[0] < end and is_running(folder))):
        rule = f"has not saved its trunk yet, which ends at step {began.trunk:,}"
        raise NotYetError.of(_KEY, run.extends, rule, Hint("wait, and run it again"))
    if found is None:
        rule = f"has no checkpoint of the first {plan.trunk:,} steps, where this run cools down"
        fix = f"resnet-train --resume {shlex.quote(str(folder))}"
        if (folder / SUMMARY).exists():
            fix = f"epochs={float(began.epochs):g}"
        raise NotReadyError.of(_KEY, run.extends, rule, fix)
    NotReadyError.refuse(_edits(folder, found[1], recipe))
    return Trunk(folder, *found)


def _edits(folder: Path, state: State, recipe: Recipe) -> Iterator[Problem]:
    """Yield the settings in a run's folder that are not those its checkpoint was trained with."""
    trained = state.get("recipe")
    if not isinstance(trained, dict) or not is_plain(trained, DEPTH):
        yield Problem(str(folder / CHECKPOINTS), None, "has a checkpoint without its recipe")
        return
    for problem in find_changed_settings(trained, recipe):
        yield problem._replace(key=f"{folder / CONFIG}: {problem.key}")


def _differences(folder: Path, began: Plan, plan: Plan) -> list[Problem]:
    """Return why a run cannot go on from another one's trunk."""
    recipe = plan.recipe
    if not began.trunk:
        place, length = shlex.quote(str(folder)), recipe.max_duration
        rule = f"has no trunk: its schedule is {began.recipe.schedule.name}, not wsd"
        words = f"recipe={place}/{CONFIG} model.weights={place} max_duration={length}"
        fix = (f"resnet-train {words}", Hint("a new run that starts from its weights"))
        return [Problem(_KEY, recipe.run.extends, rule, fix)]
    if recipe.launch.budget:
        rule = "is the time of a run that begins by itself"
        return [Problem("budget", recipe.launch.budget, rule, "epochs=60")]
    timed = durations(recipe)
    changed = find_changed_settings(asdict(as_long(began.recipe, recipe)), recipe)
    if problems := [problem for problem in changed if problem.key not in timed]:
        return problems
    trained_on = replace(plan.facts, eval_digest=began.facts.eval_digest)
    if others := began.facts.differing(trained_on):
        return [Problem("data.root", recipe.data.root, f"has other {others} than {folder}")]
    return list(departures(began, plan))
