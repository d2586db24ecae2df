"""What a run will take on this machine: measured here, by a datasheet, or a guess."""

import json
import shlex
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean

import torch

from resnet_recipes.base import atomic
from resnet_recipes.base.cores import cores
from resnet_recipes.base.errors import ExitCode, NotReadyError, Problem, RecipeError
from resnet_recipes.base.paths import is_fetched
from resnet_recipes.base.text import Say
from resnet_recipes.data.base import DataConfig
from resnet_recipes.doctor import cuda
from resnet_recipes.doctor.data import decode_some
from resnet_recipes.estimating.estimate import (
    RunForecast,
    Speeds,
    estimate,
    key_of,
    on_cpu,
    on_gpus,
    recall,
    remember,
    sampled,
    speeds_of,
)
from resnet_recipes.estimating.roofline import known
from resnet_recipes.jobs.group import Group, group_of, threads
from resnet_recipes.jobs.loading import with_loaders
from resnet_recipes.jobs.rank import RankProcess, shown
from resnet_recipes.jobs.task import Task, run_sample
from resnet_recipes.planning.course import estimate_gpu_memory, estimate_run, make_course
from resnet_recipes.planning.plan import Plan
from resnet_recipes.run_folder import ESTIMATE, METRICS
from resnet_recipes.run_folder.metrics import read_metrics
from resnet_recipes.run_folder.summary import epoch_seconds, evaluation_seconds

#: How a person gets to know it better.
MEASURES = "`resnet-recipes estimate` measures"
UNKNOWN = f"no time is known; {MEASURES}"


def predicted(plan: Plan) -> RunForecast | None:
    """Return the time of a run from the best source there is: measured here, datasheet, or guess.

    None for GPUs of which no datasheet is known.
    """
    if found := recall(measured_as(plan)):
        return from_measured(plan, *found)
    launch, course, ranks = plan.recipe.launch, make_course(plan), plan.world_size
    if gpu := _has_roofline(plan) and known(cuda.found().name):
        speeds = with_loaders(plan, on_gpus(course, gpu), shares_cores=False)
        loading = "" if speeds.loader else ", if loading keeps up"
        source = f"predicted for {ranks} x {gpu.name}{loading}; {MEASURES}"
    elif ranks == 1 and (launch.device == "cpu" or not cuda.found().count):
        guess = on_cpu(course, cores(), plan.recipe.precision.dtype)
        speeds = with_loaders(plan, guess, shares_cores=True)
        source = f"a guess from the network's arithmetic on this CPU; {MEASURES}"
    else:
        return None
    return RunForecast(estimate(course, speeds), speeds, source)


def from_measured(plan: Plan, speeds: Speeds, when: float) -> RunForecast:
    """Return the time of a run at speeds that were measured on this machine."""
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
    return RunForecast(estimate_run(plan, speeds), speeds, f"measured on this machine {day}", when)


def keep_estimate(plan: Plan, folder: Path) -> None:
    """Write the estimate of a run to its folder, if this machine was measured.

    The summary reports its error.
    """
    found = predicted(plan)
    if found and found.when:
        values = {
            "training_seconds": 60 * found.estimate.minutes,
            "bounds_seconds": [60 * minutes for minutes in found.estimate.bounds],
        }
        atomic.write_text(folder / ESTIMATE, json.dumps(values) + "\n")


def memory(plan: Plan) -> tuple[float, int] | None:
    """Return the bytes that a GPU is expected to need, and has; None if they are not known."""
    size = cuda.found().memory if _has_roofline(plan) else 0
    return (estimate_gpu_memory(plan), size) if size else None


def measured_as(plan: Plan) -> str:
    """Return a key for everything that speeds depend on, besides machine and version."""
    recipe = plan.recipe
    gpu = cuda.found().name if recipe.launch.device != "cpu" else ""
    return key_of(
        {
            "device": gpu or f"cpu, {threads(plan.world_size)} threads",
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


def _has_roofline(plan: Plan) -> bool:
    launch, precision = plan.recipe.launch, plan.recipe.precision
    return launch.device != "cpu" and precision.dtype != "fp32" and plan.network.is_predicted


#: What rank 0 found, in the folder of ranks that measure.
SPEEDS = "speeds.json"

#: Steps that a check trains.
CHECKED = 2

#: Seconds for which a check decodes images.
DECODED = 60.0


def measured(plan: Plan, say: Say, again: bool = False) -> RunForecast:
    """Return the time of a run as this machine was measured, or is now, for about a minute.

    Raises NotDoneError.
    """
    found = predicted(plan)
    if found and found.when and not again:
        return found
    say("measuring this machine, for about a minute ...")
    new = speeds(plan, group_of(plan.recipe.launch), say)
    remember(measured_as(plan), new)
    return from_measured(plan, new, time.time())


def speeds(plan: Plan, group: Group, say: Say) -> Speeds:
    """Let ranks measure the speeds of a run. Raises NotDoneError."""
    task, here = Task("measure", "this machine was not measured"), replace(group, max_restarts=0)
    with task.run(plan.recipe, plan.facts, here, say) as folder:
        return Speeds.of_json(json.loads((folder / SPEEDS).read_text()))


def trained(plan: Plan, count: int, say: Say) -> tuple[dict[int, float], RunForecast]:
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
    with run_sample(plan, spans, say) as folder:
        records = read_metrics(folder / METRICS)
    timed, evaluations = epoch_seconds(records, size), evaluation_seconds(records)
    images = plan.facts.eval_examples * (1 + plan.recipe.evaluation.flip)
    course = make_course(plan)
    speeds = speeds_of(course, timed, images / mean(evaluations) if evaluations else None)
    source = f"the papers' rule, from {len(timed)} of {len(plan.sizes)} epochs"
    return timed, RunForecast(estimate(course, speeds), speeds, source, time.time())


def check(plan: Plan, say: Say) -> None:
    """Decode images, train the last steps of a run, and evaluate and save once.

    The last steps have the largest images. Nothing is kept. Raises NotReadyError if images cannot
    be read, or NotDoneError; then the folder with the ranks' logs is kept.
    """
    if plan.facts.backend == "torchvision" and not is_fetched(plan.recipe.data.root):
        _check_images(plan.recipe.data, say)
    last = (max(0, plan.total_steps - CHECKED), plan.total_steps)
    with run_sample(plan, [last], say):
        pass


def _check_images(config: DataConfig, say: Say) -> None:
    """Decode all images, or as many as a minute allows. Raises NotReadyError."""
    found = decode_some(config, DECODED)
    command = f"resnet-recipes doctor data {shlex.quote(config.root)}"
    if config.on_bad_image == "skip" and (skipped := found.bad.pop("train")):
        say(f"skipping unreadable images in train: {len(skipped):,}; {command} lists them")
    NotReadyError.refuse(
        Problem(
            "data.root",
            config.root,
            f"has unreadable images in {split}: {len(bad):,}, such as {bad[0]}",
            (*(["data.on_bad_image=skip"] if split == "train" else []), command),
        )
        for split, bad in found.bad.items()
        if bad
    )
    is_whole = found.count == found.total
    more = "" if is_whole else f" in {DECODED:.0f} s; {command} decodes all"
    say(f"decoded {found.count:,} of {found.total:,} images{more}")


def work(process: RankProcess) -> int:
    """Measure together with the other ranks, as the job of a rank."""
    # these import torchvision, which takes seconds
    from resnet_recipes.jobs.prepared import prepared
    from resnet_recipes.training import distributed, probe

    if (made := prepared(process)) is None:
        return process.interruption.exit_code
    rank, plan = made
    with shown(process, "measuring", "parts") as progress:
        started = time.monotonic() - process.launch.started
        found = probe.measure_speeds(plan, rank, started=started, progress=progress)
    if rank.is_main:
        atomic.write_text(process.folder / SPEEDS, json.dumps(asdict(found)))
    distributed.wait_for_ranks()
    distributed.leave()
    return ExitCode.DONE
