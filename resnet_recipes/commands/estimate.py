"""`resnet-recipes estimate NAME data=PATH`: predict the time and cost of a run."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict

from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.composed import composed
from resnet_recipes.commands.progress import say
from resnet_recipes.commands.runs import price_of
from resnet_recipes.commands.table import table
from resnet_recipes.commands.written import write_csv
from resnet_recipes.launch.measurement import known, measured, plan_here
from resnet_recipes.measure.estimate import Estimate
from resnet_recipes.measure.memory import Remembered
from resnet_recipes.planning.estimate import estimate_for
from resnet_recipes.report.text import clock_time, rate

MEASURING = "measuring this machine, for about a minute ..."


def run(arguments: Arguments) -> int:
    """Measure, or recall what was measured before, and print the estimate."""
    given = price_of(arguments.flags.get("--price"))
    _, plan = plan_here(composed(arguments), say)
    price = given if given is not None else plan.recipe.launch.price
    found = None if "--again" in arguments else known(plan)
    if found is None:
        say(MEASURING)
        ending, found = measured(plan, say)
        if found is None:
            return ending.code
    result = estimate_for(plan, found.speeds)
    phases = [asdict(phase) for phase in result.phases]
    write_csv(arguments, phases)
    if "--json" in arguments:
        values = {
            "training_minutes": result.minutes,
            "bounds_minutes": result.bounds,
            "measured": found.when,
            "evaluation_minutes": result.evaluation_minutes,
            "phases": phases,
        }
        print(
            json.dumps(values | ({} if price is None else {"cost": result.cost(price)}), indent=2)
        )
    else:
        print("\n".join(_lines(result, found, price)))
    return 0


def _lines(result: Estimate, found: Remembered, price: float | None) -> Iterator[str]:
    speeds = found.speeds
    rows = [
        {
            "IMAGES": f"{phase.pixels} px",
            "EPOCHS": str(phase.epochs),
            "IMAGES/S": rate(phase.images_per_second),
            "TIME": clock_time(60 * phase.minutes),
            "WAITS FOR": phase.limit,
        }
        for phase in result.phases
    ]
    yield from table(rows, ("EPOCHS", "WAITS FOR"))
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
        f"Measured on this machine {time.strftime('%Y-%m-%d %H:%M', time.localtime(found.when))}, "
        f"with {speeds.batch} images per device and step at "
        f"{', '.join(f'{side} px' for side in sorted(speeds.step))}."
    )
    if speeds.devices > 1:
        side = min(speeds.step)
        yield (
            f"The exchange between {speeds.devices} ranks takes {1000 * speeds.exchange:.0f} ms "
            f"alone; a step at {side} px takes {1000 * speeds.step_seconds(side):.0f} ms."
        )
