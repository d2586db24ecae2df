"""Predict or measure the time of a run on this machine."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import torch

from resnet_recipes import cuda
from resnet_recipes.base import atomic
from resnet_recipes.base.cores import count_threads, count_training_cores
from resnet_recipes.base.errors import ExitCode, RecipeError, Statement
from resnet_recipes.base.text import Say
from resnet_recipes.jobs.machine.loading import add_loading
from resnet_recipes.jobs.ranks.group import Group, is_for_gpus, make_group
from resnet_recipes.jobs.ranks.rank import RankProcess, show_progress
from resnet_recipes.jobs.task import Task, run_sample
from resnet_recipes.planning.estimate import (
    RunForecast,
    Speeds,
    estimate,
    find_contradiction_note,
    make_speeds,
    sample_epochs,
)
from resnet_recipes.planning.measurement_cache import make_key, read_measurement, write_measurement
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.predictions import (
    estimate_gpu_memory,
    guess_cpu_speeds,
    predict_gpu_speeds,
)
from resnet_recipes.planning.roofline import find_datasheet
from resnet_recipes.run_folder import METRICS
from resnet_recipes.run_folder.metrics import Record, read_metrics
from resnet_recipes.run_folder.summary import compute_throughput, time_epochs, time_evaluations

#: A clause for a predicted time: how to measure the time.
MEASURES = "`resnet-recipes estimate` measures it"
GUESS = f"a guess from the network's FLOPs; {MEASURES}"
UNKNOWN_TIME = Statement(f"the time is unknown; {MEASURES}")


def predict_time(plan: Plan) -> RunForecast | None:
    """Return the time of a run from the best source: measured here, datasheet, or guess.

    None if there is no source, as for GPUs without a known datasheet, or several CPU ranks.
    """
    if measurement := read_measurement(make_speed_key(plan)):
        return make_forecast(plan, *measurement)
    ranks = plan.world_size
    if gpu := _has_roofline(plan) and find_datasheet(cuda.find_gpus().name):
        speeds = add_loading(plan, predict_gpu_speeds(plan, gpu))
        loading = "" if speeds.loader_images_per_second else ", if loading keeps up"
        source = f"predicted for {ranks} x {gpu.name}{loading}; {MEASURES}"
    elif ranks == 1 and not is_for_gpus(plan.recipe.launch):
        speeds = add_loading(plan, guess_cpu_speeds(plan, count_training_cores(ranks)))
        return RunForecast(estimate(plan, speeds), speeds, GUESS, is_guess=True)
    else:
        return None
    return RunForecast(estimate(plan, speeds), speeds, source)


def explain_unknown_time(plan: Plan) -> Statement:
    """Return the statement about a time that `predict_time` cannot find."""
    if is_for_gpus(plan.recipe.launch) and not cuda.find_gpus().count:
        return Statement(f"the time is unknown without a GPU; {MEASURES} on the GPU machine")
    return UNKNOWN_TIME


def make_forecast(plan: Plan, speeds: Speeds, when: float) -> RunForecast:
    """Return the time of a run at speeds measured on this machine."""
    source = time.strftime("measured on this machine %Y-%m-%d %H:%M", time.localtime(when))
    if find_contradiction_note(plan, speeds):
        source += " while it was busy"
    return RunForecast(estimate(plan, speeds), speeds, source, when)


class MemoryForecast(NamedTuple):
    """The memory of a GPU, in bytes."""

    needed_bytes: float  # needed by the run
    gpu_bytes: int


def predict_memory(plan: Plan) -> MemoryForecast | None:
    """Return the memory that a run needs on each GPU; None if unknown."""
    size = cuda.find_gpus().memory_bytes if _has_roofline(plan) else 0
    return MemoryForecast(estimate_gpu_memory(plan), size) if size else None


def make_speed_key(plan: Plan) -> str:
    """Return a key for everything that affects speed, in addition to machine and version."""
    recipe = plan.recipe
    device = f"cpu, {count_threads(plan.world_size)} threads"
    if is_for_gpus(recipe.launch):
        device = cuda.find_gpus().name or "unknown GPU"
    return make_key(
        {
            "device": device,
            "torch": torch.__version__,
            "model": recipe.model,
            "precision": recipe.precision,
            "methods": recipe.methods,
            "optimizer": recipe.optimizer.name,
            "micro-batch": plan.micro_batch_size,
            # without the normalization, which depends on the weights
            "data": asdict(recipe.data) | {"mean": "", "std": ""},
            "sizes": (plan.image_sizes[0], min(plan.image_sizes), max(plan.image_sizes)),
            "backend": plan.facts.backend,
            "devices": plan.world_size,
        }
    )


def _has_roofline(plan: Plan) -> bool:
    launch, precision = plan.recipe.launch, plan.recipe.precision
    return launch.device != "cpu" and precision.dtype != "fp32" and plan.network.is_predicted


SPEEDS = "speeds.json"  # file with the result of rank 0, in the folder of the task


def measure_time(plan: Plan, say: Say, repeats: bool = False) -> RunForecast:
    """Return the measured time of a run; measures this machine for about a minute if necessary.

    Raises NotReadyError if GPUs are missing, NotDoneError if a rank fails or is stopped.
    """
    forecast = predict_time(plan)
    is_complete = forecast and forecast.when and forecast.estimate.other_minutes is not None
    if forecast and is_complete and not repeats:
        return forecast
    say("measuring this machine for about a minute; keep it idle ...")
    new = measure_on_ranks(plan, make_group(plan.recipe.launch), say)
    write_measurement(make_speed_key(plan), new)
    return make_forecast(plan, new, time.time())


def measure_on_ranks(plan: Plan, group: Group, say: Say) -> Speeds:
    """Measure the speeds of a run. Raises NotDoneError if a rank fails or is stopped."""
    task = Task(run_task, "this machine was not measured")
    group = replace(group, max_restarts=0)
    with task.run(plan.recipe, plan.facts, group, say) as folder:
        return Speeds.from_json(json.loads((folder / SPEEDS).read_text()))


class TimedEpochs(NamedTuple):
    """Epochs that were trained as a sample of a run."""

    seconds: dict[int, float]  # seconds of each epoch, counted from 0
    forecast: RunForecast  # forecast for the complete run


def train_epochs(plan: Plan, count: int, say: Say) -> TimedEpochs:
    """Train, evaluate and save some epochs of a run, exactly as in the run.

    Raises RecipeError if the run has fewer than two complete epochs, NotDoneError if a rank fails
    or is stopped.
    """
    image_sizes = plan.image_sizes[: plan.total_steps // plan.steps_per_epoch]
    if len(image_sizes) < 2:
        rule = "must be at least two epochs: the first is counted like the second"
        raise RecipeError.of("max_duration", plan.recipe.max_duration, rule)
    steps = plan.steps_per_epoch
    epochs = sample_epochs(image_sizes, count)
    spans = [(epoch * steps, (epoch + 1) * steps) for epoch in epochs]
    with run_sample(plan, spans, say) as folder:
        records = read_metrics(folder / METRICS)
    seconds = time_epochs(records, steps)
    speeds = make_speeds(plan, seconds, _compute_evaluation_speed(plan, records))
    sample = f"{len(seconds)} of {len(plan.image_sizes)} epochs"
    source = f"the first epoch counted like the second, from {sample}"
    forecast = RunForecast(estimate(plan, speeds), speeds, source, time.time())
    return TimedEpochs(seconds, forecast)


def store_speeds(plan: Plan, folder: Path) -> None:
    """Store the speeds of a finished run for later plans.

    They replace the speeds of an earlier run, but not those that `estimate` measured.
    """
    earlier = read_measurement(make_speed_key(plan))
    if earlier and earlier.speeds.start_seconds is not None:
        return
    records = read_metrics(folder / METRICS)
    throughput = compute_throughput(records, plan.recipe.batch.global_size)
    seconds = {size: (1 / rate,) for size, rate in throughput.items()}
    if seconds:
        unknown = dict.fromkeys(plan.image_sizes, "")  # the parts of a step were not timed
        speeds = Speeds(seconds, _compute_evaluation_speed(plan, records), bottlenecks=unknown)
        write_measurement(make_speed_key(plan), speeds)


def _compute_evaluation_speed(plan: Plan, records: Sequence[Record]) -> float | None:
    """Return the images per second of the evaluations of a run; None if there are none."""
    seconds = time_evaluations(records)
    images = plan.facts.eval_examples * (1 + plan.recipe.evaluation.flip)
    return images / mean(seconds) if seconds else None


def run_task(process: RankProcess) -> int:
    """Measure the speeds of a run together with the other ranks; rank 0 writes them."""
    from resnet_recipes.jobs.ranks.prepare import prepare_rank
    from resnet_recipes.training import distributed, measurement

    if (rank_plan := prepare_rank(process)) is None:
        return process.interruption.exit_code
    rank, plan = rank_plan
    with show_progress(process, "measuring", "parts") as progress:
        elapsed = time.monotonic() - process.launch.started_at
        speeds = measurement.measure_speeds(plan, rank, elapsed_seconds=elapsed, progress=progress)
    if rank.is_main:
        atomic.write_text(process.folder / SPEEDS, json.dumps(asdict(speeds)))
    distributed.wait_for_ranks()
    distributed.leave_group()
    return ExitCode.DONE
