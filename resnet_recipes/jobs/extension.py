"""`run.extends`: continue the stable phase of another run in a new run."""

import shlex
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import (
    Command,
    Fix,
    Hint,
    NotReadyError,
    Problem,
    RecipeError,
    RetryLaterError,
    Statement,
)
from resnet_recipes.base.reading import read_bytes
from resnet_recipes.data.base import DataFacts
from resnet_recipes.network.archive import State
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.planning.stable_phase import copy_duration, find_durations, find_phase_problems
from resnet_recipes.recipe import frozen_recipe
from resnet_recipes.recipe.build import is_plain_recipe
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder import CHECKPOINTS, CONFIG, DATA, EXIT, METRICS, OVERRIDES, WEIGHTS
from resnet_recipes.run_folder.ending import format_resume, suggest_restart
from resnet_recipes.run_folder.lock import is_running, reject_links
from resnet_recipes.run_folder.metrics import format_record, read_metrics
from resnet_recipes.run_folder.runs import can_resume
from resnet_recipes.training.checkpoint import Checkpoints
from resnet_recipes.training.state import find_setting_problems


class StableState(NamedTuple):
    """A checkpoint of a run's stable phase, from which another run continues."""

    folder: Path  # folder of this run
    step: int
    state: State

    def __str__(self) -> str:
        return f"{self.folder} at step {self.step:,}"

    def read_overrides(self) -> dict[str, str]:
        """Return the settings from the command line of that run, by key."""
        lines = read_bytes(self.folder / OVERRIDES).decode(errors="replace").splitlines()
        return {line.lstrip("~").partition("=")[0]: line for line in lines}

    def put_into(self, folder: Path, recipe: Recipe) -> None:
        """Write the checkpoint and the records that a run of `recipe` would have at this step."""
        checkpoints = Checkpoints(folder / CHECKPOINTS)
        checkpoints.open_for_writing()
        checkpoints.save(self.step, self.state | {"recipe": asdict(recipe)}, wait=True)
        records = read_metrics(self.folder / METRICS)
        text = "".join(format_record(record) for record in records if record["step"] <= self.step)
        atomic.write_text(folder / METRICS, text)


def find_stable_state(plan: Plan) -> StableState | None:
    """Return the initial state of a run that extends another run; None if it starts from step 0.

    Raises RecipeError if the other run starts differently. Raises RetryLaterError if it does not
    exist yet or its stable phase may still finish, and NotReadyError if that phase cannot finish or
    its recipe was edited. Raises TrainingError if its checkpoints cannot be read.
    """
    run = plan.recipe.run
    if not run.extends:
        return None
    folder = Path(run.root, run.extends)
    flag = f"--extend {run.extends}"
    if not (folder / CONFIG).is_file():
        absent = Statement(f"there is no run {folder} yet")
        raise RetryLaterError.of("run.extends", run.extends, absent)
    reject_links(folder)
    recipe = frozen_recipe.read(folder / CONFIG)
    facts = DataFacts.read(folder / DATA, recipe.data.root, suggest_restart(folder))
    parent = make_plan(recipe, facts, plan.world_size, reads_teachers=False)
    RecipeError.raise_if_any(_find_extension_problems(folder, parent, plan))
    checkpoints = Checkpoints(folder / CHECKPOINTS)
    end = min(parent.stable_steps, plan.stable_steps)
    checkpoint = checkpoints.load_newest(end)
    has_ended = (folder / EXIT).exists() and not is_running(folder)
    if not has_ended and (checkpoint is None or (checkpoint.step < end and is_running(folder))):
        clause = f"has not finished its stable phase, which ends at step {parent.stable_steps:,}"
        raise RetryLaterError.of(flag, None, clause, Hint("wait, then run the same command again"))
    if checkpoint is None:
        clause = f"has no checkpoint up to step {plan.stable_steps:,}, where this run cools down"
        fix: Fix = f"epochs={float(parent.epochs):g}"
        if not any(checkpoints.iterate_steps()):
            fix = format_resume(folder) if can_resume(folder) else suggest_restart(folder)
        raise NotReadyError.of(flag, None, clause, fix)
    NotReadyError.raise_if_any(_find_edit_problems(folder, checkpoint.state, recipe))
    return StableState(folder, *checkpoint)


def _find_edit_problems(folder: Path, state: State, recipe: Recipe) -> Iterator[Problem]:
    """Yield the settings in a run folder that differ from those used for its checkpoint."""
    trained_recipe = state.get("recipe")
    if not isinstance(trained_recipe, dict) or not is_plain_recipe(trained_recipe):
        yield Problem(str(folder / CHECKPOINTS), None, "has a checkpoint without its recipe")
        return
    for problem in find_setting_problems(trained_recipe, recipe):
        yield problem._replace(where=str(folder / CONFIG))


def _find_extension_problems(folder: Path, parent: Plan, plan: Plan) -> list[Problem]:
    """Return the reasons why a run cannot continue the stable phase of `parent`."""
    recipe = plan.recipe
    if not parent.stable_steps:
        path = shlex.quote(str(folder))
        epochs = recipe.max_duration.removesuffix("ep")
        clause = f"has no stable phase: its schedule is {parent.recipe.schedule.name}, not wsd"
        fix: Fix = (
            Command(f"resnet-train recipe={path}/{CONFIG} model.weights={path} epochs={epochs}"),
            Hint(f"this starts a new run from the weights of {path}"),
        )
        if not (folder / WEIGHTS).exists():
            fix = suggest_restart(folder)
            if can_resume(folder):
                hint = Hint("finish this run, then train from its weights")
                fix = (format_resume(folder), hint)
        return [Problem(f"--extend {recipe.run.extends}", None, clause, fix)]
    if recipe.launch.budget:
        clause = "cannot be used with --extend"
        return [Problem("budget", recipe.launch.budget, clause, "epochs=60")]
    durations = find_durations(recipe)
    changes = find_setting_problems(asdict(copy_duration(parent.recipe, recipe)), recipe)
    if problems := [problem for problem in changes if problem.key not in durations]:
        return problems
    trained_on = replace(plan.facts, eval_digest=parent.facts.eval_digest)
    if differing := parent.facts.describe_differences(trained_on):
        return [Problem("data.root", recipe.data.root, f"differs from {folder} in {differing}")]
    return list(find_phase_problems(parent, plan))
