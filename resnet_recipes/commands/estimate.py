"""`resnet-recipes estimate recipe=NAME data=PATH`: predict the time and cost of a run."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import ExitCode
from resnet_recipes.commands.arguments import RECIPES, Arguments, Usage
from resnet_recipes.commands.composed import composed
from resnet_recipes.commands.progress import say
from resnet_recipes.commands.runs import price_of
from resnet_recipes.measure.estimate import EXCHANGE, Estimate, Speeds, estimate
from resnet_recipes.measure.memory import Remembered, key_of, recall, remember
from resnet_recipes.report.summary import ESTIMATE
from resnet_recipes.report.text import clock_time, rate

if TYPE_CHECKING:
    from resnet_recipes.planning.plan import Plan
    from resnet_recipes.recipe.compose import Composed

USAGE = Usage(
    "resnet-recipes estimate recipe=NAME data=PATH [key=value ...]",
    "measure this machine for a minute, and predict how long a run will take and what it will cost",
    "resnet-recipes estimate recipe=mild data=/data/imagenet --price 32.8",
    RECIPES
    | {
        "--price PER_HOUR": "price of the machine",
        "--again": "measure again",
        "--json": "print JSON",
    },
    "Run it while nothing else is running. All devices of this machine are measured at once.",
)


def run(arguments: Arguments) -> int:
    """Measure, or recall what was measured before, and print the estimate."""
    plan = plan_of(composed(arguments))
    given = price_of(arguments.flags.get("--price"))
    price = given if given is not None else plan.recipe.launch.price
    found = None if "--again" in arguments else known(plan)
    if found is None:
        code, found = measured(plan)
        if found is None:
            return code
    result = of(plan, found.speeds)
    if "--json" in arguments:
        values = {
            "training_minutes": result.minutes,
            "bounds_minutes": result.bounds,
            "measured": found.when,
            "evaluation_minutes": result.evaluation_minutes,
            "phases": [asdict(phase) for phase in result.phases],
        }
        print(
            json.dumps(values | ({} if price is None else {"cost": result.cost(price)}), indent=2)
        )
    else:
        print("\n".join(_lines(plan, result, found, price)))
    return 0


def measured(plan: "Plan") -> tuple[int, Remembered | None]:
    """Measure the speeds of this machine; return an exit code, and the speeds if it is 0."""
    from resnet_recipes.launch import measurement
    from resnet_recipes.launch.group import group_of

    say("measuring this machine, for about a minute ...")
    ending, found = measurement.speeds(plan, group_of(plan.recipe.launch), say)
    if found is None:
        return ending.code, None
    remember(_key(plan), found)
    return ExitCode.DONE, Remembered(found, time.time())


def known(plan: "Plan") -> Remembered | None:
    """Return the speeds of this machine if they were measured before."""
    return recall(_key(plan))


def keep(plan: "Plan", folder: Path) -> None:
    """Write the estimate of a run to its folder, if this machine was measured; the summary reports its error."""
    if before := known(plan):
        result = of(plan, before.speeds)
        values = {
            "training_seconds": 60 * result.minutes,
            "bounds_seconds": [60 * minutes for minutes in result.bounds],
        }
        atomic.write_text(folder / ESTIMATE, json.dumps(values) + "\n")


def _key(plan: "Plan") -> str:
    """Return a key for everything that the speeds depend on, besides machine and version."""
    import torch

    from resnet_recipes.launch import gpus

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
            "devices": plan.world_size // recipe.launch.fewest_and_most_nodes[1],
        }
    )


def of(plan: "Plan", speeds: Speeds) -> Estimate:
    """Return the estimate of a plan."""
    evaluations = -(-plan.total_steps // plan.steps(plan.recipe.evaluation.interval)) + (
        "eval_weights" in plan.hooks
    )
    # a run may end within an epoch
    share = plan.total_steps / (plan.steps_per_epoch * len(plan.sizes))
    result = estimate(
        plan.sizes,
        plan.steps_per_epoch,
        plan.recipe.batch.global_size,
        plan.world_size,
        evaluations * plan.facts.eval_examples,
        speeds,
    )
    return replace(
        result,
        phases=tuple(
            replace(
                phase, low=phase.low * share, minutes=phase.minutes * share, high=phase.high * share
            )
            for phase in result.phases
        ),
    )


def plan_of(wanted: "Composed") -> "Plan":
    """Return the plan of a composed recipe on this machine."""
    from resnet_recipes import data
    from resnet_recipes.launch.group import group_of
    from resnet_recipes.planning.plan import make_plan

    return make_plan(
        wanted.recipe, data.measure(wanted.recipe.data), group_of(wanted.recipe.launch).ranks
    )


def _lines(plan: "Plan", result: Estimate, found: Remembered, price: float | None) -> Iterator[str]:
    speeds = found.speeds
    yield f"{'IMAGES':<8} {'EPOCHS':>6} {'IMAGES/S':>9} {'TIME':>8}  WAITS FOR"
    for phase in result.phases:
        yield (
            f"{f'{phase.pixels} px':<8} {phase.epochs:>6} {rate(phase.images_per_second):>9} "
            f"{clock_time(60 * phase.minutes):>8}  {phase.limit}"
        )
    low, high = (clock_time(60 * minutes) for minutes in result.bounds)
    yield ""
    yield f"training    {clock_time(60 * result.minutes):>8}   between {low} and {high}"
    yield f"evaluation  {clock_time(60 * result.evaluation_minutes):>8}"
    yield (
        f"total       {clock_time(60 * result.total_minutes):>8}   without start-up and checkpoints"
    )
    if price is not None:
        yield f"cost        {result.cost(price):>8.2f}   at {price:g} per hour"
    yield ""
    yield (
        "Measured on this machine "
        f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(found.when))}, with "
        f"{speeds.batch} images per device and step "
        f"at {', '.join(f'{side} px' for side in sorted(speeds.step))}."
    )
    if speeds.devices > 1:
        side = min(speeds.step)
        yield (
            f"The exchange between {speeds.devices} ranks takes {1000 * speeds.exchange:.0f} ms "
            "alone; a step "
            f"at {side} px takes {1000 * speeds.step_seconds(side):.0f} ms."
        )
    if plan.world_size > speeds.devices:
        yield (
            "The exchange between nodes was not measured; it is assumed to cost up to "
            f"{EXCHANGE:.0%}."
        )
