"""Describe a plan as text, with a labeled row for each fact."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from resnet_recipes.base.duration import Duration
from resnet_recipes.base.errors import LabeledText
from resnet_recipes.base.text import format_bytes, format_count, format_facts, format_number
from resnet_recipes.methods.base import Method
from resnet_recipes.planning.plan import Plan
from resnet_recipes.run_folder.facts import PublishedResult, find_nearest

LABEL_COLUMNS = 13  # columns for the label of a row

#: A row between two parts of a plan.
BLANK: LabeledText = ("", "")


def format_lines(rows: Iterable[LabeledText], width: int = 80) -> list[str]:
    """Return rows as plain lines, wrapped at `width` columns next to their label."""
    return format_facts(rows, width, LABEL_COLUMNS, 2)


def describe_plan(plan: Plan) -> Iterator[LabeledText]:
    """Yield all rows of a plan that do not depend on this machine."""
    yield from describe_essentials(plan)
    yield BLANK
    yield from describe_details(plan)
    yield BLANK
    yield from describe_extras(plan)
    yield BLANK
    for note in (*plan.facts.notes, *plan.notes):
        yield from note.list_rows()


def describe_essentials(plan: Plan, machine: Iterable[LabeledText] = ()) -> Iterator[LabeledText]:
    """Yield the most important rows; `machine` contains the device and the time."""
    facts = plan.facts
    yield (
        "images",
        f"{plan.recipe.data.root or facts.root}: {facts.train_examples:,} for training, "
        f"{facts.eval_examples:,} for evaluation, {format_count(len(facts.classes), 'class')}",
    )
    if plan.start:
        yield "start", str(plan.start)
    for teacher in plan.teachers:
        yield "teacher", teacher.text
    yield from machine
    yield "disk", f"up to {plan.disk}"
    if result := find_nearest(plan.published, plan.epochs):
        owner = f"{plan.published_recipe}: " if plan.published_recipe else ""
        yield "published", owner + format_published(result, plan.epochs)
    elif others := {result.model for result in plan.recipe.published} - {plan.recipe.model.title}:
        clause = f"results are for {', '.join(others)}, not for {plan.recipe.model.title}"
        yield "published", clause


def find_published_time(plan: Plan) -> PublishedResult | None:
    """Return the published result with a time whose duration is nearest, or None."""
    results = [result for result in plan.published if result.minutes and result.epochs]
    return find_nearest(results, plan.epochs)


def describe_published_time(plan: Plan) -> str:
    """Return the result of `find_published_time` as text, or ""."""
    if not (result := find_published_time(plan)):
        return ""
    owner = f" of {plan.published_recipe}" if plan.published_recipe else ""
    return f"{result.time} for {result.epochs} epochs{owner} on {result.hardware}"


def describe_details(plan: Plan) -> Iterator[LabeledText]:
    """Yield rows on the details of a run: figures with units, and a sentence for each method."""
    recipe, model = plan.recipe, plan.recipe.model
    duration = f"{describe_duration(plan)}{_describe_scaling(plan)}"
    yield (
        "duration",
        f"{duration} of {format_count(plan.steps_per_epoch, 'step')}: "
        f"{format_count(plan.total_steps, 'step')}{_describe_target(plan)}",
    )
    yield (
        "batch",
        f"{recipe.batch.global_size:,} images per step: "
        f"{format_count(plan.world_size, 'device')} x "
        f"{format_count(plan.micro_batches, 'micro-batch')} of {plan.micro_batch_size} "
        f"(BatchNorm statistics {'frozen' if model.freezes_statistics else 'per micro-batch'})",
    )
    yield "lr", _describe_lr(plan)
    trains_backbone = model.freeze != "backbone"
    optimizer = recipe.optimizer if trains_backbone else replace(recipe.optimizer, backbone_rate=1)
    yield "optimizer", optimizer.text()
    forms = plan.network.text + (", compiled" if recipe.precision.compile else "")
    if recipe.precision.kernels == "off":
        forms += ", without fused kernels and CUDA graphs"
    yield "model", f"{recipe.model.title}, {plan.network.parameters:,} parameters{forms}"
    fit = "" if recipe.data.fit == "crop" else f"{recipe.data.fit}, "
    sizes = " to ".join(map(str, dict.fromkeys((plan.image_sizes[0], plan.image_sizes[-1]))))
    yield (
        "pixels",
        f"train at {sizes}; evaluate at {recipe.data.eval_size} (resize to "
        f"{recipe.data.eval_resize}, {fit}center crop)",
    )
    evaluation_interval = _format_interval(plan, recipe.evaluation.interval)
    checkpoint_interval = _format_interval(plan, recipe.checkpoint.interval)
    between = "and" if evaluation_interval == checkpoint_interval else f"{evaluation_interval},"
    yield "saving", f"evaluate {between} save a checkpoint {checkpoint_interval}"
    methods = [
        f"{method.name}: {_summarize(method)}" for method in plan.new_stack().methods.values()
    ]
    for index, text in enumerate(methods or ["none"]):
        yield "" if index else "methods", text


def describe_extras(plan: Plan) -> Iterator[LabeledText]:
    """Yield rows that explain a result or a difference, but are not needed before a start."""
    steps = {0, plan.warmup, *(plan.total_steps * quarter // 4 for quarter in (1, 2, 3))}
    points = ", ".join(
        f"{plan.lr_at(step):.3g} at {step / plan.steps_per_epoch:.3g}"
        for step in sorted(steps | {plan.total_steps - 1})
    )
    yield "lr values", f"by epoch: {points} (updated every {plan.recipe.schedule.interval})"
    yield "sizes", format_sizes(plan.image_sizes)
    total = format_number(sum(plan.flops) / 1e15)
    yield "compute", f"{total} PFLOPs (10^15 operations), forward and backward"
    for index, (hook, names) in enumerate(plan.hooks.items()):
        yield "" if index else "hooks", f"{hook:<16} {', '.join(names)}"
    if plan.batch_memory:
        yield (
            "loader",
            f"up to {format_bytes(plan.batch_memory)} of memory for the batches of "
            f"{format_count(plan.world_size, 'device')} "
            f"(data.prefetch={plan.recipe.data.prefetch})",
        )
    for index, detail in enumerate(plan.facts.details):
        yield "" if index else "reading", detail
    for index, result in enumerate(plan.published):
        yield "" if index else "published", format_published(result)


def describe_duration(plan: Plan) -> str:
    """Return the duration of the run in epochs."""
    return format_count(plan.epochs, "epoch", "g" if plan.epochs >= 100 else ".3g")


def format_sizes(sizes: tuple[int, ...]) -> str:
    """Return image sizes with their epochs: "88 px (epochs 1-15), 92 (16), 96 (17-18)"."""
    parts: list[str] = []
    first = 1
    for size, group in groupby(sizes):
        last = first + len(list(group)) - 1
        span = f"{first}" if first == last else f"{first}-{last}"
        epochs = "epoch" if first == last else "epochs"
        parts.append(f"{size} ({span})" if parts else f"{size} px ({epochs} {span})")
        first = last + 1
    return ", ".join(parts)


def format_published(result: PublishedResult, epochs: float | None = None) -> str:
    """Return a published result in one line; name the epochs of this run if they differ."""
    parts = [f"{result.top1:g}% top-1"]
    if result.epochs:
        is_other = epochs not in (None, result.epochs)
        other = f" (this run: {epochs:.4g})" if is_other else ""
        parts.append(format_count(result.epochs, "epoch") + other)
    parts += [result.time] if result.time else []
    parts += [result.hardware] if result.hardware else []
    return ", ".join(parts) + (f" ({result.source})" if result.source else "")


def _describe_scaling(plan: Plan) -> str:
    ratio = plan.recipe.scale_schedule_ratio
    base = Duration.parse(plan.recipe.max_duration)
    is_exact = float(base.value * ratio).is_integer()
    rounding = "" if is_exact else ", rounded down"
    return "" if ratio == 1 else f" ({float(base.value):g} x {ratio:g}{rounding})"


def _describe_target(plan: Plan) -> str:
    target = plan.recipe.evaluation.stop_at_top1
    return "" if target is None else f"; stops early if an evaluation reaches {target:g}% top-1"


def _describe_lr(plan: Plan) -> str:
    config, peak = plan.recipe.schedule, plan.recipe.optimizer.lr
    # a curve reaches its final rate after the last step; a milestone there has no effect
    last = plan.lr_at(plan.total_steps - (config.name == "multistep"))
    course = config.name if config.name == "constant" else f"{config.name} to {last:.3g}"
    if config.name == "wsd":
        course = (
            f"constant, down to {last:.3g} in the last {Duration.parse(config.cooldown).to_words()}"
        )
    warmup = Duration.parse(config.warmup).to_words()
    rise = f"rises to {peak:g} over {warmup}, then " if plan.warmup else f"{peak:g}, "
    return f"{rise}{course}"


def _format_interval(plan: Plan, duration: str) -> str:
    """Return a description of an interval: "every epoch", "every 2 steps", "at the end"."""
    steps = plan.horizon.interval(Duration.parse(duration))
    if steps >= plan.total_steps:
        return "at the end"
    epochs, rest = divmod(steps, plan.steps_per_epoch)
    count = format_count(steps, "step") if rest else format_count(epochs, "epoch")
    return f"every {count.removeprefix('1 ')}"


def _summarize(method: Method) -> str:
    """Return the first sentence of a method's docstring, without the paper."""
    text = (type(method).__doc__ or "").partition("\n")[0].partition(" (")[0].rstrip(".")
    return text[:1].lower() + text[1:]
