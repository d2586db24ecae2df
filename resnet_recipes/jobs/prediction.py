"""What a run will take on this machine, and how that is known."""

import json
import time
from pathlib import Path

import torch

from resnet_recipes.base import atomic
from resnet_recipes.base.cores import cores
from resnet_recipes.estimating.estimate import Prediction, Speeds, estimate
from resnet_recipes.estimating.roofline import known
from resnet_recipes.estimating.speeds import key_of, on_cpu, on_gpus, recall
from resnet_recipes.jobs import gpus
from resnet_recipes.jobs.group import threads
from resnet_recipes.planning.course import course_of, gpu_memory, time_of
from resnet_recipes.planning.plan import Plan
from resnet_recipes.run_folder import ESTIMATE

#: How a person gets to know it better.
MEASURES = "`resnet-recipes estimate` measures"
UNKNOWN = f"no time is known; {MEASURES}"


def predicted(plan: Plan) -> Prediction | None:
    """Return the time of a run from the best source there is: measured here, datasheet, or guess.

    None for GPUs of which no datasheet is known.
    """
    if found := recall(measured_as(plan)):
        return from_measured(plan, *found)
    launch, course, ranks = plan.recipe.launch, course_of(plan), plan.world_size
    if gpu := _has_roofline(plan) and known(gpus.found().name):
        speeds = on_gpus(course, gpu)
        source = f"predicted for {ranks} x {gpu.name}, if loading keeps up; {MEASURES}"
    elif ranks == 1 and (launch.device == "cpu" or not gpus.found().count):
        speeds = on_cpu(course, cores(), plan.recipe.precision.dtype)
        source = f"a guess from the network's arithmetic on this CPU; {MEASURES}"
    else:
        return None
    return Prediction(estimate(course, speeds), speeds, source)


def from_measured(plan: Plan, speeds: Speeds, when: float) -> Prediction:
    """Return the time of a run at speeds that were measured on this machine."""
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
    return Prediction(time_of(plan, speeds), speeds, f"measured on this machine {day}", when)


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
    size = gpus.found().memory if _has_roofline(plan) else 0
    return (gpu_memory(plan), size) if size else None


def measured_as(plan: Plan) -> str:
    """Return a key for everything that speeds depend on, besides machine and version."""
    recipe = plan.recipe
    gpu = gpus.found().name if recipe.launch.device != "cpu" else ""
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
