"""Measure how fast this machine's devices run a recipe, all at once, as ranks do in training."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from resnet_recipes import data
from resnet_recipes.base import atomic
from resnet_recipes.base.reading import read_json
from resnet_recipes.data import frozen
from resnet_recipes.launch import gpus, run_folder, start
from resnet_recipes.launch.fitting import fitted
from resnet_recipes.launch.group import MEASURE, Group, group_of
from resnet_recipes.measure.estimate import Speeds
from resnet_recipes.measure.memory import Remembered, key_of, recall, remember
from resnet_recipes.measure.sample import SAMPLE, SECONDS
from resnet_recipes.network.teacher import taught
from resnet_recipes.planning.estimate import estimate_for
from resnet_recipes.planning.plan import Plan, make_plan
from resnet_recipes.process.ending import Ending
from resnet_recipes.recipe.compose import Composed
from resnet_recipes.recipe.frozen import freeze
from resnet_recipes.report.summary import ESTIMATE

#: Steps that a check trains.
CHECKED = 2


def plan_here(wanted: Composed, say: Callable[[str], None]) -> tuple[Composed, Plan]:
    """Return a recipe and the plan of its run, both as on the devices of this machine."""
    recipe = wanted.recipe
    facts, group = data.measure(recipe.data), group_of(recipe.launch)
    plan = taught(make_plan(recipe, facts, group.ranks, wanted.typed))
    return fitted(wanted, plan, say)


def measured(plan: Plan, say: Callable[[str], None]) -> tuple[Ending, Remembered | None]:
    """Measure for about a minute; return how the ranks ended, and the speeds if they ended well."""
    ending, found = speeds(plan, group_of(plan.recipe.launch), say)
    if found is None:
        return ending, None
    remember(_key(plan), found)
    return ending, Remembered(found, time.time())


def known(plan: Plan) -> Remembered | None:
    """Return the speeds of this machine if they were measured before."""
    return recall(_key(plan))


def keep_estimate(plan: Plan, folder: Path) -> None:
    """Write the estimate of a run to its folder, if this machine was measured.

    The summary reports its error.
    """
    if before := known(plan):
        result = estimate_for(plan, before.speeds)
        values = {
            "training_seconds": 60 * result.minutes,
            "bounds_seconds": [60 * minutes for minutes in result.bounds],
        }
        atomic.write_text(folder / ESTIMATE, json.dumps(values) + "\n")


def speeds(plan: Plan, group: Group, say: Callable[[str], None]) -> tuple[Ending, Speeds | None]:
    """Return how the ranks that measure ended, and what they found if they ended well."""
    # imports torchvision, which takes seconds
    from resnet_recipes.process.measurement import RECIPE, SPEEDS

    files = {RECIPE: freeze(plan.recipe), frozen.NAME: frozen.dump(plan.facts)}
    here = replace(group, max_restarts=0, program=MEASURE)
    with start.started(files, here, say) as (folder, ending):
        if ending.code:
            return ending, None
        return ending, Speeds.of_json(json.loads((folder / SPEEDS).read_text()))


def time_epochs(
    composed: Composed,
    plan: Plan,
    epochs: Sequence[int],
    command: Sequence[str],
    say: Callable[[str], None],
) -> tuple[Ending, dict[int, float]]:
    """Train some epochs of a run, counted from 0, and nothing else.

    Return how the ranks ended, and the seconds of each epoch if they ended well; otherwise the
    folder with their logs is kept.
    """
    with _sample(composed, plan, {"epochs": list(epochs)}, command, say) as (folder, ending):
        found = {} if ending.code else read_json(folder / SECONDS)
    return ending, {int(epoch): taken for epoch, taken in found.items()}


def check(
    composed: Composed, plan: Plan, command: Sequence[str], say: Callable[[str], None]
) -> Ending:
    """Train the last steps of a run, which has its largest images, and evaluate and save once.

    Return how the ranks ended. Nothing is kept, unless they failed.
    """
    recipe = replace(composed.recipe, log=replace(composed.recipe.log, to=[]))
    composed = replace(composed, recipe=recipe)
    with _sample(composed, plan, {"last_steps": CHECKED}, command, say) as (_, ending):
        return ending


@contextmanager
def _sample(
    composed: Composed,
    plan: Plan,
    sample: Mapping[str, object],
    command: Sequence[str],
    say: Callable[[str], None],
) -> Iterator[tuple[Path, Ending]]:
    """Train a part of a run in a folder that is deleted at the end, unless the ranks failed."""
    root = Path(tempfile.mkdtemp(prefix="resnet-recipes-"))
    run = replace(composed.recipe.run, root=str(root), name="sample")
    recipe = replace(composed.recipe, run=run)
    folder = run_folder.create(replace(composed, recipe=recipe), plan, command)
    atomic.write_text(folder / SAMPLE, json.dumps(sample))
    ending = start.start(folder, group_of(recipe.launch), say)
    yield folder, ending
    start.discard(root, ending)


def _key(plan: Plan) -> str:
    """Return a key for everything that the speeds depend on, besides machine and version."""
    recipe = plan.recipe
    gpu = gpus.first()[0] if recipe.launch.device != "cpu" else ""
    return key_of(
        {
            "device": gpu or f"cpu, {torch.get_num_threads()} threads",
            "torch": torch.__version__,
            "model": recipe.model,
            "precision": recipe.precision,
            "methods": recipe.methods,
            "optimizer": recipe.optimizer.name,
            "micro-batch": plan.bn_size,
            "data": recipe.data,
            "sizes": (plan.sizes[0], min(plan.sizes), max(plan.sizes)),
            "backend": plan.facts.backend,
            "devices": plan.world_size,
        }
    )
