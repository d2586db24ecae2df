"""`resnet-recipes bottleneck`: show whether the loader or the step is the bottleneck."""

from collections.abc import Iterator

from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.composed import composed
from resnet_recipes.commands.estimate import MEASURING
from resnet_recipes.commands.progress import say
from resnet_recipes.launch.measurement import measured, plan_here
from resnet_recipes.measure.estimate import Speeds
from resnet_recipes.methods import ORDER
from resnet_recipes.planning.plan import Plan
from resnet_recipes.report.text import rate


def run(arguments: Arguments) -> int:
    """Measure on all devices of this machine, and print one screen."""
    _, plan = plan_here(composed(arguments), say)
    say(MEASURING)
    ending, found = measured(plan, say)
    if found is not None:
        print("\n".join(_lines(plan, found.speeds)))
    return ending.code


def _lines(plan: Plan, found: Speeds) -> Iterator[str]:
    step = {side: 1 / found.seconds_at(side)[1] for side in sorted(found.step)}
    first = plan.sizes[0]
    need = 1 / found.seconds_at(first)[1]
    devices = "1 device" if found.devices == 1 else f"{found.devices} devices"
    speeds = (f"{rate(speed)} images/s at {side} px" for side, speed in step.items())
    yield f"step alone    {', '.join(speeds)}"
    loader = (
        f"{rate(found.loader)} images/s" if found.loader else "nothing to load: synthetic images"
    )
    yield f"loader alone  {loader}"
    if found.end_to_end:
        yield f"both          {rate(found.end_to_end)} images/s at {first} px"
    if found.devices > 1:
        yield (
            f"exchange      {1000 * found.exchange:.0f} ms alone; a step at {first} px takes "
            f"{1000 * found.step_seconds(first):.0f} ms"
        )
    yield ""
    if not found.loader or found.loader >= 1.1 * need:
        waits = found.waits_for_exchange(first)
        limit = "exchange of gradients" if waits else "step"
        yield (
            f"The {limit} is the bottleneck: {devices} can train {rate(need)} images/s "
            f"at {first} px."
        )
        yield "To speed it up:"
        yield from (
            f"  {advice}" for advice in (_faster_exchange(plan) if waits else _faster_step(plan))
        )
    else:
        wait = 1 - found.loader / need
        yield (
            f"The loader is the bottleneck: at {first} px, {devices} could train {rate(need)} "
            f"images/s, but will wait {100 * wait:.0f} % of the time."
        )
        yield "To speed it up:"
        yield from (f"  {advice}" for advice in _faster_loader(plan))


def _faster_step(plan: Plan) -> Iterator[str]:
    used = plan.methods().methods
    for method in ORDER:
        if method.cheaper_steps and method.name not in used:
            yield f"'methods.{method.name}={{}}'   {method.cheaper_steps}"
    yield "a smaller data.train_size, a shorter run (epochs=), or more devices"


def _faster_exchange(plan: Plan) -> Iterator[str]:
    if not plan.recipe.precision.compress_gradients:
        yield "precision.compress_gradients=true    send gradients in bf16: half the bytes"
    yield "a larger bs=, with a larger lr, exchanges less often; or fewer devices"


def _faster_loader(plan: Plan) -> Iterator[str]:
    if plan.facts.backend == "torchvision":
        yield (
            f"resnet-recipes convert {plan.recipe.data.root} DESTINATION    smaller images, in "
            "one file per split"
        )
    for method in plan.methods():
        yield from method.loader_hints()
    yield "more CPU cores per GPU"
