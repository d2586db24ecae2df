"""`resnet-recipes plan NAME`: print the plan of a run without starting it."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes import __version__, cuda
from resnet_recipes.base.cores import count_training_cores, is_emulated
from resnet_recipes.base.errors import Command, Hint, Note, format_advice, list_advice
from resnet_recipes.base.money import MIN_AMOUNT, compute_cost, format_cost
from resnet_recipes.base.text import format_bytes, format_clock, format_count, format_number
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.printing import get_page_width, say, show
from resnet_recipes.command_line.recipe_arguments import compose_recipe, plan_command
from resnet_recipes.command_line.run_arguments import find_resumed
from resnet_recipes.command_line.usage import JSON, RECIPES, Scope, Usage
from resnet_recipes.jobs.ranks import external_launcher
from resnet_recipes.jobs.ranks.group import find_group_problems, is_for_gpus, iterate_warnings
from resnet_recipes.recipe.sections import AUTO
from resnet_recipes.run_folder import CHECKPOINTS, METRICS
from resnet_recipes.run_folder.facts import find_nearest
from resnet_recipes.run_folder.metrics import filter_kind, read_metrics

if TYPE_CHECKING:
    from resnet_recipes.jobs.machine.run_time import MemoryForecast
    from resnet_recipes.planning.estimate import RunForecast
    from resnet_recipes.planning.plan import Plan

USAGE = Usage(
    "resnet-recipes plan NAME [key=value ...]",
    "print the plan of a run: time, disk space, settings",
    "resnet-recipes plan mild data=/data/imagenet gpus=8",
    RECIPES
    | {
        "--verbose": "also print compute, learning rates and image sizes by epoch, hooks, all "
        "published results and, on a machine with a GPU, its memory"
    }
    | JSON,
    "`resnet-train NAME ... --dry-run` prints the same plan. Without data=, it assumes ImageNet.",
    settings=Scope.RECIPE,
)

WARNING = "WARNING"

_LAST = (WARNING, "use", "or")  # labels of the rows about the machine, printed last

LabeledRows = Iterator[tuple[str, str]]


def run(arguments: Arguments) -> int:
    """Print the plan of a recipe, or of the run that --resume would continue.

    Without data, the plan assumes ImageNet.
    """
    from resnet_recipes.jobs.machine.budget import fit_budget
    from resnet_recipes.jobs.resume import check_resume
    from resnet_recipes.planning import outline

    folder, seconds_left = "", None
    if resumed := find_resumed(arguments, say):
        plan = check_resume(*resumed, say)
        if plan is None:
            return 0
        folder, seconds_left = _describe_resumption(resumed.folder, plan)
    else:
        plan = plan_command(compose_recipe(arguments, needs_data=False), arguments)
        plan = fit_budget(plan, say, measures=False)
    lines: Iterable[str] = format_plan(plan, folder, "--verbose" in arguments, seconds_left)
    if "--no-plan" in arguments:
        rows = [*_describe_device(plan, None)]
        rows += [row for note in _iterate_notes(plan, None) for row in note.list_rows()]
        lines = ["the settings are valid", *outline.format_lines(rows, get_page_width())]
    if missing := "--dry-run" in arguments and [*_iterate_missing(plan)]:
        row = WARNING, f"this run cannot start: {'; '.join(missing)}"
        lines = chain(lines, outline.format_lines([row], get_page_width()))
    values = collect_values(plan, seconds_left) if "--json" in arguments else {}
    show(arguments, values, lines)
    return 0


def _iterate_missing(plan: "Plan") -> Iterator[str]:
    """Yield what a run needs and this machine lacks."""
    from resnet_recipes.planning.plan import IMAGENET_FACTS

    if plan.facts is IMAGENET_FACTS:
        yield "data= is missing"
    if plan.start and plan.start.is_absent:
        yield "the initial weights are missing"
    if not external_launcher.find_launcher():
        for problem in find_group_problems(plan.recipe.launch):
            yield problem.about(problem.key)


def collect_values(plan: "Plan", seconds_left: float | None = None) -> dict[str, object]:
    """Return a plan as JSON values, with its time, cost, device and notes."""
    from resnet_recipes.jobs.machine import run_time

    forecast = run_time.predict_time(plan)
    seconds = 60 * forecast.estimate.total_minutes if forecast else None
    price = plan.recipe.launch.price
    published = find_nearest(plan.published, plan.epochs)
    notes = _iterate_notes(plan, forecast)
    return plan.as_dict() | {
        "device": next(_describe_device(plan, None))[1],
        "seconds": seconds,
        "seconds_source": forecast.source if forecast else "",
        "seconds_left": seconds_left,
        "cost": None if price is None or seconds is None else compute_cost(seconds, price),
        "published": asdict(published) if published else None,
        "notes": [{"text": note.text, "fix": list_advice(note.fix)} for note in notes],
    }


def _describe_resumption(folder: Path, plan: "Plan") -> tuple[str, float | None]:
    """Return a row on where a run resumes, and the seconds that are left from there.

    The seconds are the estimate of the run; None if it made none. Raises TrainingError if there are
    checkpoints but none can be read.
    """
    from resnet_recipes.training.checkpoint import Checkpoints

    newest = Checkpoints(folder / CHECKPOINTS, note=say).load_newest()
    done = newest.step if newest else 0
    steps = filter_kind(read_metrics(folder / METRICS), "step")
    left = [record.get("seconds_left") for record in steps if record["step"] <= done]
    text = f"{folder}, resumed at epoch {done / plan.steps_per_epoch:.2f} of {plan.epochs:.4g}"
    if not left or left[-1] is None:
        return f"{text}; `time` counts all epochs", None
    return text, left[-1]


def format_plan(
    plan: "Plan", folder: str = "", full: bool = False, seconds_left: float | None = None
) -> Iterator[str]:
    """Yield the lines of a plan, the most important rows first; `full` adds all details.

    `seconds_left` replaces the time of the run. Warnings come last, where a terminal stops.
    """
    from resnet_recipes.jobs.machine import run_time
    from resnet_recipes.planning import outline

    entry = plan.origin.entry
    memory = run_time.predict_memory(plan)
    forecast = run_time.predict_time(plan)
    hides = ", hides the packaged recipe of the same name" if entry.shadows else ""
    rows = [("recipe", f"{plan.recipe.name}, {entry.location}{hides}")]
    if plan.origin.arguments:
        rows.append(("changed", "  ".join(plan.origin.arguments)))
    machine = [
        *_describe_device(plan, memory),
        *(
            _describe_time(plan, forecast)
            if seconds_left is None
            else _describe_time_left(plan, seconds_left)
        ),
        *_describe_loading(plan, forecast),
    ]
    machine += [(WARNING, text) for text in iterate_warnings(plan.recipe.launch)]
    alarms = [row for note in _iterate_notes(plan, forecast) for row in note.list_rows()]
    alarms += [row for row in machine if row[0] in _LAST]
    rows += outline.describe_essentials(plan, [row for row in machine if row[0] not in _LAST])
    if folder:
        rows.append(("run folder", folder))
    rows += [outline.BLANK, *outline.describe_details(plan)]
    if full:
        rows += [
            outline.BLANK,
            *outline.describe_extras(plan),
            *_describe_forecast(forecast, memory),
        ]
    rows += [outline.BLANK, *alarms] if alarms else []
    yield f"resnet-recipes {__version__}"
    yield from outline.format_lines(rows, get_page_width())


def _iterate_notes(plan: "Plan", forecast: "RunForecast | None") -> Iterator[Note]:
    """Yield notes on settings that a user may want to change, with those of this machine."""
    from resnet_recipes.jobs.candidates import MAX_SMALL_SIZE, find_typical_size
    from resnet_recipes.planning.estimate import find_evaluation_note

    yield from (*plan.facts.notes, *plan.notes)
    data = plan.recipe.data
    size = find_typical_size(data, plan.facts)
    if data.train_size <= MAX_SMALL_SIZE < size:
        text = f"data.train_size={data.train_size} is for smaller images than these, of {size:g} px"
        yield Note(text, Hint("the recipe finetune is for photographs"))
    elif 0 < size <= MAX_SMALL_SIZE < data.train_size:
        text = f"the images have {size:g} px, and data.train_size={data.train_size} enlarges them"
        # whether small images gain from trained weights at a larger size was not measured
        fix = Hint("the recipe small is for such images")
        yield Note(text, () if plan.recipe.model.weights else fix)
    if forecast and (note := find_evaluation_note(plan, forecast)):
        yield note
    launch = plan.recipe.launch
    if forecast and plan.published and not is_for_gpus(launch) and launch.device == AUTO:
        elsewhere = Command.of("resnet-recipes", "plan", plan.recipe.name, "gpus=8")
        yield Note("a CPU is too slow for this run; a plan can be for GPUs elsewhere", elsewhere)


def _describe_device(plan: "Plan", memory: "MemoryForecast | None") -> LabeledRows:
    """Yield device and precision, and a warning if the run may not fit in memory."""
    launch, dtype = plan.recipe.launch, plan.recipe.precision.dtype
    gpus = cuda.find_gpus()
    if is_for_gpus(launch) and (gpus.count or not external_launcher.count_started_ranks()):
        has = format_count(gpus.count, "GPU") if gpus.count else "no GPU"
        here = f" (this machine has {has})" if gpus.count < plan.world_size else ""
        if dtype == "auto":
            dtype = gpus.dtype or "bf16 if the GPU supports it, else fp16"
        yield "device", f"{plan.world_size} x {gpus.name or 'GPU'}{here}, {dtype}"
        is_known = plan.recipe.batch.bn_size != AUTO
        if is_known and memory and memory.needed_bytes > memory.gpu_bytes:
            yield (
                WARNING,
                f"may not fit in GPU memory: batch.bn_size={plan.micro_batch_size // 2} needs "
                "about half as much, and barely changes the result",
            )
        return
    cores = format_count(count_training_cores(plan.world_size), "core")
    yield "device", f"CPU with {cores}, {'fp32' if dtype == 'auto' else dtype}"
    if is_emulated(dtype):
        from resnet_recipes.planning.predictions import EMULATION_FACTOR

        note = Note(
            f"this CPU has no instructions for {dtype}, so steps take about {EMULATION_FACTOR} "
            "times as long as in fp32",
            "precision.dtype=fp32",
        )
        yield from note.list_rows(WARNING)


def _describe_loading(plan: "Plan", forecast: "RunForecast | None") -> LabeledRows:
    """Yield images kept in memory, and the time lost to loading."""
    from resnet_recipes.jobs.machine.loading import find_loading_note
    from resnet_recipes.jobs.machine.memory import list_options, plan_memory

    if options := list_options(plan):
        yield "in memory", str(plan_memory(plan) or f"none: {options[-1]}")
    if forecast and (note := find_loading_note(plan, forecast)):
        yield "loading", note.text
        yield from (("", format_advice(fix)) for fix in list_advice(note.fix))


def _describe_forecast(
    forecast: "RunForecast | None", memory: "MemoryForecast | None"
) -> LabeledRows:
    """Yield the expected memory and speed of a run, and its bottleneck."""
    if memory:
        need, size = map(format_bytes, memory)
        yield "memory", f"about {need} of {size} per GPU: predicted, not measured"
    if forecast:
        phases = forecast.estimate.phases
        speeds = ", ".join(
            f"{format_number(phase.images_per_second)} images/s at {phase.pixels} px"
            + (f" ({phase.limit})" if phase.limit else "")
            for phase in dict.fromkeys((phases[0], phases[len(phases) // 2], phases[-1]))
        )
        yield "speed", f"{speeds}: {forecast.source}"


def _describe_time_left(plan: "Plan", seconds: float) -> LabeledRows:
    """Yield the time and cost that are left, at the speed of the run so far."""
    text = f"about {format_clock(seconds)} with evaluations, at the speed of the run so far"
    yield "time left", text
    if (price := plan.recipe.launch.price) is not None:
        yield "cost left", format_cost(compute_cost(seconds, price), price)


def _describe_time(plan: "Plan", forecast: "RunForecast | None") -> LabeledRows:
    """Yield the time and cost of the run, or the cost of a published run."""
    from resnet_recipes.planning.outline import describe_published_time, find_published_time

    price = plan.recipe.launch.price
    if forecast:
        result = forecast.estimate
        is_known = result.other_minutes is not None
        bounds = ", checkpoints and startup" if is_known else ", without startup"
        if forecast.when:
            low, high = (format_clock(60 * minutes) for minutes in result.bounds)
            bounds += f", training {low} to {high}" if low != high else f", training about {low}"
        yield (
            "time",
            f"{forecast.format_time(60 * result.total_minutes)} with evaluations{bounds}: "
            f"{forecast.source}",
        )
        if price is not None:
            amount = result.cost(price)
            about = "" if forecast.when or amount < MIN_AMOUNT else "about "
            yield "cost", f"{about}{format_cost(amount, price)}"
        return
    text = "not predicted without a GPU" if plan.recipe.launch.device != "cpu" else "not predicted"
    if cuda.find_gpus().count:
        text = "`resnet-recipes estimate` measures this run"
    yield "time", text
    if price is not None:
        clause = ""
        if (published := find_published_time(plan)) and published.minutes:
            cost = format_cost(compute_cost(60 * published.minutes, price), price)
            clause = f"; the published {describe_published_time(plan)} would cost {cost}"
        yield "cost", f"unknown, like the time{clause}"
