"""Measure how fast this machine's devices run a recipe, all at once, as ranks do in training."""

import json
import time
from dataclasses import asdict, replace
from statistics import mean

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import ExitCode, RecipeError
from resnet_recipes.base.text import Say
from resnet_recipes.estimating.estimate import Prediction, Speeds, estimate
from resnet_recipes.estimating.speeds import remember, sampled, speeds_of
from resnet_recipes.jobs.errand import NotDoneError, errand, sample
from resnet_recipes.jobs.group import Group, group_of
from resnet_recipes.jobs.prediction import from_measured, measured_as, predicted
from resnet_recipes.jobs.rank import RankProcess, shown
from resnet_recipes.planning.course import course_of
from resnet_recipes.planning.plan import Plan
from resnet_recipes.run_folder import METRICS
from resnet_recipes.run_folder.ending import Ending
from resnet_recipes.run_folder.metrics import read_metrics
from resnet_recipes.run_folder.summary import epoch_seconds, evaluation_seconds

#: What rank 0 found, in the folder of ranks that measure.
SPEEDS = "speeds.json"

#: Steps that a check trains.
CHECKED = 2


def measured(plan: Plan, say: Say, again: bool = False) -> Prediction:
    """Return the time of a run as this machine was measured, or is now, for about a minute.

    Raises NotDoneError.
    """
    found = predicted(plan)
    if found and found.when and not again:
        return found
    say("measuring this machine, for about a minute ...")
    ending, new = speeds(plan, group_of(plan.recipe.launch), say)
    if new is None:
        raise NotDoneError("this machine was not measured", ending)
    remember(measured_as(plan), new)
    return from_measured(plan, new, time.time())


def speeds(plan: Plan, group: Group, say: Say) -> tuple[Ending, Speeds | None]:
    """Return how the ranks that measure ended, and what they found if they ended well."""
    here = replace(group, max_restarts=0)
    with errand("measure", plan.recipe, plan.facts, here, say) as (folder, ending):
        if ending.code:
            return ending, None
        return ending, Speeds.of_json(json.loads((folder / SPEEDS).read_text()))


def trained(plan: Plan, count: int, say: Say) -> tuple[dict[int, float], Prediction]:
    """Train, evaluate and save some epochs of a run as it would.

    Return the seconds of each epoch, counted from 0, and what they say of the whole run. Raises
    NotDoneError; then the folder with the ranks' logs is kept.
    """
    whole = plan.sizes[: plan.total_steps // plan.steps_per_epoch]
    if len(whole) < 2:
        rule = "must be at least two epochs: the first is timed as the second"
        raise RecipeError.of("max_duration", plan.recipe.max_duration, rule)
    size = plan.steps_per_epoch
    spans = [(epoch * size, (epoch + 1) * size) for epoch in sampled(whole, count)]
    with sample(plan, spans, say) as (folder, ending):
        if ending.code:
            raise NotDoneError("this machine was not measured", ending)
        records = read_metrics(folder / METRICS)
    timed, evaluations = epoch_seconds(records, size), evaluation_seconds(records)
    images = plan.facts.eval_examples * (1 + plan.recipe.evaluation.flip)
    course = course_of(plan)
    speeds = speeds_of(course, timed, images / mean(evaluations) if evaluations else None)
    source = f"the papers' rule, from {len(timed)} of {len(plan.sizes)} epochs"
    return timed, Prediction(estimate(course, speeds), speeds, source, time.time())


def check(plan: Plan, say: Say) -> Ending:
    """Train the last steps of a run, which has its largest images, and evaluate and save once.

    Return how the ranks ended. Nothing is kept, unless they failed.
    """
    last = (max(0, plan.total_steps - CHECKED), plan.total_steps)
    with sample(plan, [last], say) as (_, ending):
        return ending


def work(process: RankProcess) -> int:
    """Measure together with the other ranks, as the job of a rank."""
    # these import torchvision, which takes seconds
    from resnet_recipes.jobs.prepared import prepared
    from resnet_recipes.training import distributed, probe

    if (made := prepared(process)) is None:
        return process.interruption.exit_code
    rank, plan = made
    with shown(process, "measuring", "parts") as progress:
        started = time.monotonic() - process.started
        found = probe.speeds(plan, rank, started=started, progress=progress)
    if rank.is_main:
        atomic.write_text(process.folder / SPEEDS, json.dumps(asdict(found)))
    distributed.meet()
    distributed.leave()
    return ExitCode.DONE
