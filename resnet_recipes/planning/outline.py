"""A plan as text for people: one labelled row for each thing that a run will do."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from resnet_recipes.base.duration import Duration
from resnet_recipes.base.text import TRY, byte_size, counted, digits, labelled
from resnet_recipes.methods.base import Method
from resnet_recipes.planning.plan import Plan
from resnet_recipes.run_folder.facts import Published, nearest

LABEL = 13  # columns of a row's label

OutlineRow = tuple[str, str]

#: A row between two parts of a plan.
BLANK: OutlineRow = ("", "")


def lines(rows: Iterable[OutlineRow], width: int = 80) -> list[str]:
    """Return rows as plain lines of at most `width` columns, wrapped under their label."""
    return labelled(rows, width, LABEL, 2)


def rows(plan: Plan) -> Iterator[OutlineRow]:
    """Yield everything that a plan says, whatever machine it runs on."""
    yield from answers(plan)
    yield BLANK
    yield from details(plan)
    yield BLANK
    yield from rest(plan)
    yield BLANK
    yield from notes(plan)


def answers(plan: Plan, machine: Iterable[OutlineRow] = ()) -> Iterator[OutlineRow]:
    """Yield what people ask first; `machine` says on what it runs, and how long."""
    facts = plan.facts
    yield (
        "images",
        f"{plan.recipe.data.root or facts.root}: {facts.train_examples:,} to train on and "
        f"{facts.eval_examples:,} to evaluate, {counted(len(facts.classes), 'class')}",
    )
    if plan.start:
        yield "start", plan.start
    for teacher in plan.teachers:
        yield "teacher", teacher.text
    yield from machine
    yield "disk", f"up to {plan.disk}"
    if result := nearest(plan.published, plan.epochs):
        yield "published", published(result)
    elif others := {result.model for result in plan.recipe.published} - {plan.recipe.model.title}:
        rule = (
            f"the recipe's results are for {', '.join(others)}, not for {plan.recipe.model.title}"
        )
        yield "published", rule


def notes(plan: Plan) -> Iterator[OutlineRow]:
    """Yield what a user may want to change before the start."""
    for note in (*plan.facts.notes, *plan.start_notes, *plan.notes):
        text, _, command = note.partition("\n")
        yield "note", text
        if command:
            yield TRY, command


def details(plan: Plan) -> Iterator[OutlineRow]:
    """Yield what a run does, each figure with its unit and each method in words."""
    recipe = plan.recipe
    yield (
        "length",
        f"{length(plan)}{_scaling(plan)}, {counted(plan.steps_per_epoch, 'step')} each: "
        f"{counted(plan.total_steps, 'step')}{_target(plan)}",
    )
    yield (
        "batch",
        f"{recipe.batch.global_size:,} images a step: {counted(plan.world_size, 'device')} x "
        f"{counted(plan.microbatches, 'micro-batch')} of {plan.bn_size}, each with its own "
        "BatchNorm statistics",
    )
    yield "lr", f"learning rate {_rate(plan)}"
    yield "optimizer", recipe.optimizer.text()
    forms = plan.network.text + (", compiled" if recipe.precision.compile else "")
    if recipe.precision.kernels == "off":
        forms += ", without fused kernels and CUDA graphs"
    yield "model", f"{recipe.model.title}, {plan.network.parameters:,} parameters{forms}"
    sizes = " to ".join(map(str, dict.fromkeys((plan.sizes[0], plan.sizes[-1]))))
    yield (
        "pixels",
        f"{sizes} to train, {recipe.data.eval_size} to evaluate: the centre of images resized to "
        f"{recipe.data.eval_resize}" + f" ({recipe.data.fit})" * (recipe.data.fit != "crop"),
    )
    yield (
        "saving",
        f"an evaluation {_every(recipe.evaluation.interval)}, a checkpoint "
        f"{_every(recipe.checkpoint.interval)}",
    )
    named = [f"{method.name}: {_summary(method)}" for method in plan.new_stack().methods.values()]
    for index, text in enumerate(named or ["none"]):
        yield "" if index else "methods", text


def rest(plan: Plan) -> Iterator[OutlineRow]:
    """Yield what explains a result or a difference, but is not needed before a start."""
    steps = {0, plan.warmup, *(plan.total_steps * quarter // 4 for quarter in (1, 2, 3))}
    points = ", ".join(
        f"{plan.lr_at(step):.3g} at {step / plan.steps_per_epoch:.3g}"
        for step in sorted(steps | {plan.total_steps - 1})
    )
    yield "rates", f"updated every {plan.recipe.schedule.interval}; by epoch: {points}"
    yield "sizes", size_ranges(plan.sizes)
    total = digits(sum(plan.flops) / 1e15)
    yield "arithmetic", f"{total} PFLOPs (10^15 operations), forward and backward"
    for index, (hook, names) in enumerate(plan.hooks.items()):
        yield "" if index else "hooks", f"{hook:<16} {', '.join(names)}"
    if plan.batch_memory:
        yield (
            "loader",
            f"up to {byte_size(plan.batch_memory)} of memory for the "
            f"batches of {counted(plan.world_size, 'device')} in all, with "
            f"data.prefetch={plan.recipe.data.prefetch}",
        )
    for index, detail in enumerate(plan.facts.details):
        yield "" if index else "reading", detail
    for index, result in enumerate(plan.published):
        yield "" if index else "published", published(result)


def length(plan: Plan) -> str:
    """Return the length of the run in epochs."""
    epochs = float(plan.epochs)
    return f"{epochs:{'g' if epochs >= 100 else '.3g'}} epoch{'' if epochs == 1 else 's'}"


def size_ranges(sizes: tuple[int, ...]) -> str:
    """Return image sizes with their epochs: "88 px (epochs 1-15), 92 (16), 96 (17-18)"."""
    parts, first = [], 1
    for size, group in groupby(sizes):
        last = first + len(list(group)) - 1
        span = f"{first}" if first == last else f"{first}-{last}"
        epochs = "epoch" if first == last else "epochs"
        parts.append(f"{size} ({span})" if parts else f"{size} px ({epochs} {span})")
        first = last + 1
    return ", ".join(parts)


def published(result: Published) -> str:
    """Return a published result in one line."""
    parts = [f"{result.top1:g} % top-1"]
    parts += [counted(result.epochs, "epoch")] if result.epochs else []
    parts += [f"{result.minutes:g} min"] if result.minutes else []
    parts += [result.hardware] if result.hardware else []
    return ", ".join(parts) + (f" ({result.source})" if result.source else "")


def _scaling(plan: Plan) -> str:
    ratio = plan.recipe.scale_schedule_ratio
    return "" if ratio == 1 else f" ({plan.recipe.max_duration} x {ratio:g}, rounded down)"


def _target(plan: Plan) -> str:
    target = plan.recipe.evaluation.stop_at_top1
    return "" if target is None else f"; ends early if an evaluation reaches {target:g} % top-1"


def _rate(plan: Plan) -> str:
    """Return the course of the learning rate in words."""
    config, peak = plan.recipe.schedule, plan.recipe.optimizer.lr
    # a cosine ends a step before its final rate
    last = peak * round(plan.lr_at(plan.total_steps - 1) / peak, 4)
    course = config.name if config.name == "constant" else f"{config.name} to {last:.3g}"
    if config.name == "wsd":
        course = f"constant, down to {last:.3g} in the last {_spelled(config.cooldown)}"
    rise = f"up to {peak:g} in {_spelled(config.warmup)}, then " if plan.warmup else f"{peak:g}, "
    return f"{rise}{course}"


def _spelled(duration: str) -> str:
    """Return a duration in words: "4 epochs"."""
    found = Duration.parse(duration)
    if found.unit == "dur":
        return f"{float(100 * found.value):g} % of the run"
    noun = {"ep": "epoch", "ba": "step"}[found.unit]
    return f"{float(found.value):g} {noun}{'s' * (found.value != 1)}"


def _every(duration: str) -> str:
    """Return how often something happens: "every epoch", "every 4 epochs"."""
    return f"every {_spelled(duration).removeprefix('1 ')}"


def _summary(method: Method) -> str:
    """Return what a method does: the first sentence of its page, without the paper."""
    text = type(method).__doc__.partition("\n")[0].partition(" (")[0].rstrip(".")
    return text[:1].lower() + text[1:]
