"""`resnet-recipes measure NAME`: predict the time of a whole run from some of its epochs."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence

from resnet_recipes.base.errors import ExitCode, RecipeError
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.composed import composed
from resnet_recipes.commands.progress import say
from resnet_recipes.commands.table import table
from resnet_recipes.commands.written import write_csv
from resnet_recipes.launch.measurement import plan_here, time_epochs
from resnet_recipes.measure.sample import sampled, whole
from resnet_recipes.planning.plan import Plan
from resnet_recipes.report.text import clock_time, rate


def run(arguments: Arguments) -> int:
    """Train the epochs on all devices of the recipe, and print the time of the whole run."""
    count = _count(arguments.words)
    arguments.words = [word for word in arguments.words if not word.startswith("epochs=")]
    wanted, plan = plan_here(composed(arguments), say)
    if plan.epochs < 2:
        rule = "must be at least two epochs: the first is timed as the second"
        raise RecipeError.of("max_duration", wanted.recipe.max_duration, rule)
    command = ["resnet-recipes", *sys.argv[1:]]
    ending, seconds = time_epochs(wanted, plan, sampled(plan.sizes, count), command, say)
    if ending.code:
        return ending.code
    values = _values(plan, seconds)
    write_csv(arguments, values["measured"])
    if "--json" in arguments:
        print(json.dumps(values, indent=2))
    else:
        print("\n".join(_lines(plan, seconds)))
    return ExitCode.DONE


def _count(words: Sequence[str]) -> int:
    """Return how many epochs to train."""
    given = [word.removeprefix("epochs=") for word in words if word.startswith("epochs=")] or ["10"]
    if len(given) > 1 or not given[0].isdecimal() or int(given[0]) < 2:
        rule = (
            "must be the number of epochs to measure, at least 2: the first is timed as the second"
        )
        raise RecipeError.of("epochs", " ".join(given), rule, "epochs=10")
    return int(given[0])


def _values(plan: Plan, seconds: Mapping[int, float]) -> dict[str, object]:
    # a run may end within an epoch
    share = plan.total_steps / (plan.steps_per_epoch * len(plan.sizes))
    return {
        "recipe": plan.recipe.name,
        "epochs": float(plan.epochs),
        "devices": plan.world_size,
        "papers_minutes": share * whole(plan.sizes, seconds) / 60,
        "extrapolated": len(seconds) < plan.epochs,
        "measured": [
            {"epoch": epoch + 1, "pixels": plan.sizes[epoch], "seconds": taken}
            for epoch, taken in sorted(seconds.items())
        ],
    }


def _lines(plan: Plan, seconds: Mapping[int, float]) -> Iterator[str]:
    values, images = _values(plan, seconds), plan.steps_per_epoch * plan.recipe.batch.global_size
    rows = [
        {
            "EPOCH": str(epoch + 1),
            "IMAGES": f"{plan.sizes[epoch]} px",
            "SECONDS": f"{taken:.1f}",
            "IMAGES/S": rate(images / taken),
            "": "" if epoch else "timed as the second",
        }
        for epoch, taken in sorted(seconds.items())
    ]
    yield from table(rows, ("",))
    yield ""
    how = (
        f"extrapolated from {len(seconds)} epochs"
        if values["extrapolated"]
        else "all of it measured"
    )
    devices = "1 device" if plan.world_size == 1 else f"{plan.world_size} devices"
    yield (
        f"{plan.recipe.name}: {clock_time(60 * values['papers_minutes'])} on the papers' "
        f"clock, {how}"
    )
    yield f"{float(plan.epochs):.4g} epochs on {devices}, without evaluation and checkpoints"
