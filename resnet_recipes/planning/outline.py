"""A plan as text for people: one labelled row for each thing that a run will do."""

import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby

from resnet_recipes.planning.plan import Plan
from resnet_recipes.report.facts import Published
from resnet_recipes.report.text import pflops, printable

LABEL = 13  # columns of a row's label

Row = tuple[str, str]


def lines(rows: Iterable[Row], width: int = 80) -> list[str]:
    """Return rows as plain lines of at most `width` columns, wrapped under their label."""
    out = []
    for label, text in rows:
        indent = f"  {label:<{LABEL - 2}}"
        out += textwrap.wrap(
            printable(text),
            width,
            initial_indent=indent,
            subsequent_indent=" " * LABEL,
            break_on_hyphens=False,
        )
    return [line.rstrip() for line in out]


def rows(plan: Plan) -> Iterator[Row]:
    """Yield everything a run will do, in the order in which people ask."""
    recipe = plan.recipe
    yield (
        "length",
        f"{length(plan)} = {plan.total_steps:,} steps, {plan.steps_per_epoch:,} per "
        f"epoch{_scaling(plan)}",
    )
    parts = (
        f"{_count(plan.world_size, 'device')} x {_count(plan.microbatches, 'micro-batch')} x "
        f"{plan.bn_size}"
    )
    yield "batch", f"{recipe.batch.global_size} = {parts}; BatchNorm over {plan.bn_size}"
    yield "rate", _rates(plan)
    yield "optimizer", recipe.optimizer.text()
    forms = ", compiled" * recipe.precision.compile
    forms += ", without fused kernels and CUDA graphs" * (recipe.precision.kernels == "off")
    yield (
        "model",
        f"{recipe.model.name}, {plan.num_classes:,} classes, {plan.parameters:,} parameters{forms}",
    )
    if plan.start:
        yield "start", plan.start
    yield "images", size_ranges(plan.sizes)
    yield "arithmetic", f"{pflops(sum(plan.flops) / 1e15)} PFLOPs, forward and backward"
    sizes = f"{recipe.data.eval_resize} -> {recipe.data.eval_size} px"
    yield (
        "evaluation",
        f"every {recipe.evaluation.interval}, {sizes}; checkpoint every "
        f"{recipe.checkpoint.interval}",
    )
    yield "disk", f"up to {plan.disk}"
    hooks = plan.hooks
    for index, (hook, names) in enumerate(hooks.items()):
        yield "methods" if index == 0 else "", f"{hook:<16} {', '.join(names)}"
    if not hooks:
        yield "methods", "none"
    facts = plan.facts
    yield (
        "data",
        (
            f"{facts.backend}, {facts.root}: {facts.train_examples:,} training and "
            f"{facts.eval_examples:,} "
            f"evaluation images, {_count(len(facts.classes), 'class')}"
        ),
    )
    if plan.batch_memory:
        yield (
            "loader",
            (
                f"up to {plan.batch_memory / 1e6:,.0f} MB of memory for the batches of "
                f"{_count(plan.world_size, 'device')} in all, with "
                f"data.prefetch={recipe.data.prefetch}"
            ),
        )
    for index, result in enumerate(plan.published):
        yield "" if index else "published", published(result)
    for index, note in enumerate((*facts.notes, *plan.notes)):
        yield "" if index else "notes", note


def length(plan: Plan) -> str:
    """Return the length of the run in epochs."""
    epochs = float(plan.epochs)
    return f"{epochs:{'g' if epochs >= 0.1 else '.2g'}} epoch{'' if epochs == 1 else 's'}"


def size_ranges(sizes: tuple[int, ...]) -> str:
    """Return image sizes with their epochs: "88 px (epochs 1-15), 92 (16), 96 (17-18)"."""
    parts, first = [], 1
    for size, group in groupby(sizes):
        last = first + len(list(group)) - 1
        span = f"{first}" if first == last else f"{first}-{last}"
        parts.append(
            f"{size} ({span})"
            if parts
            else f"{size} px (epoch{'' if first == last else 's'} {span})"
        )
        first = last + 1
    return ", ".join(parts)


def published(result: Published) -> str:
    """Return a published result in one line."""
    parts = [f"{result.top1:g} % top-1"]
    parts += [_count(result.epochs, "epoch")] if result.epochs else []
    parts += [f"{result.minutes:g} min"] if result.minutes else []
    parts += [result.hardware] if result.hardware else []
    return ", ".join(parts) + (f" ({result.source})" if result.source else "")


def _scaling(plan: Plan) -> str:
    ratio = plan.recipe.scale_schedule_ratio
    return "" if ratio == 1 else f" ({plan.recipe.max_duration} x {ratio:g}, rounded down)"


def _rates(plan: Plan) -> str:
    """Return the shape of the learning-rate curve, and the rate at a few epochs."""
    config, last = plan.recipe.schedule, plan.total_steps - 1
    steps = sorted(
        {0, plan.warmup, *(plan.total_steps * quarter // 4 for quarter in (1, 2, 3)), last}
    )
    points = ", ".join(
        f"{plan.lr_at(step):.3g} at {step / plan.steps_per_epoch:.3g}" for step in steps
    )
    rise = (
        f"{_count(plan.warmup, 'step')} of warm-up ({config.warmup}), then " if plan.warmup else ""
    )
    return (
        f"{rise}{config.name} from {plan.recipe.optimizer.lr:g}, updated every "
        f"{config.interval}; by epoch: {points}"
    )


def _count(number: int, noun: str) -> str:
    plural = "s" if noun[-2:] not in ("ch", "ss") or noun == "epoch" else "es"
    return f"{number:,} {noun}{'' if number == 1 else plural}"
