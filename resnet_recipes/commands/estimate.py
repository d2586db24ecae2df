"""`resnet-recipes estimate [NAME] data=PATH`: time and cost of a run, or of all recipes."""

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import (
    ExitCode,
    Hint,
    Kind,
    Note,
    Problem,
    RecipeError,
    Statement,
    format_advice,
    list_advice,
)
from resnet_recipes.base.limits import find_number_problem
from resnet_recipes.base.money import format_amount, format_price
from resnet_recipes.base.text import (
    format_clock,
    format_long_time,
    format_minutes,
    format_number,
    join_first,
    wrap_text,
)
from resnet_recipes.command_line.arguments import (
    BUDGET_KEYS,
    Arguments,
    drop_arguments,
    get_value,
    name_as_typed,
    select_arguments,
)
from resnet_recipes.command_line.printing import format_or_dash, format_table, get_width, say, show
from resnet_recipes.command_line.recipe_arguments import compose_recipe, has_recipe
from resnet_recipes.command_line.usage import CSV, JSON, RECIPES, Scope, Usage
from resnet_recipes.commands.runs import read_price
from resnet_recipes.recipe.library import Library
from resnet_recipes.recipe.sections import LaunchConfig

if TYPE_CHECKING:
    from resnet_recipes.jobs.candidates import Candidate, Candidates
    from resnet_recipes.planning.estimate import RunForecast, Speeds
    from resnet_recipes.planning.plan import Plan

USAGE = Usage(
    "resnet-recipes estimate [NAME] data=PATH [key=value ...]",
    "measure this machine; predict time, cost and bottleneck of a run",
    "resnet-recipes estimate mild data=/data/imagenet --price 32.77",
    RECIPES
    | {
        "--price PER_HOUR": "price of the machine per hour, to print the cost "
        "(default launch.price)",
        "--within BUDGET": "compare recipes: the longest run of each that fits in 2h, 90m or '$20'",
        "--reach TOP1": "compare recipes: the shortest run of each that reaches this accuracy, in "
        "percent",
        "--again": "measure again; do not use the saved measurement",
        "--sample N": "extrapolate from N real epochs with evaluations and checkpoints; "
        "nothing is kept",
    }
    | CSV
    | JSON,
    """\
The measurement takes about a minute and uses all devices. Run it while nothing else is running.

Without NAME, or with --within or --reach, the command measures nothing. It prints the recipes that
fit the images, with measured or predicted (~) times, and with known costs and accuracies. Without
data=, it assumes ImageNet.""",
    needs_recipe=False,
    settings=Scope.RECIPE,
)


def check(arguments: Arguments) -> tuple[float | None, int, float | None]:
    """Return the price per hour, the epochs of --sample, and the accuracy of --reach.

    Raises RecipeError if a flag is wrong.
    """
    sample = arguments.flags.get("--sample", "0")
    errors = ErrorCollector()
    with errors:
        price = read_price(arguments.flags.get("--price"))
    with errors:
        if "--sample" in arguments:
            problem = find_number_problem("--sample", sample, 2, fix="--sample 10")
            RecipeError.raise_if_any([problem])
        unused = sorted({"--sample", "--again"} & arguments.flags.keys())
        if unused and not _measures(arguments):
            clause = "needs one recipe, without --within and --reach"
            fix = "" if has_recipe(arguments) else "recipe=mild"
            raise RecipeError.of(unused[-1], None, clause, fix, Kind.UNUSED)
    budget, reach = (arguments.flags.get(flag, "") for flag in ("--within", "--reach"))
    with errors:
        accuracy = _read_reach(reach) if "--reach" in arguments else None
    with errors:
        launch = LaunchConfig(budget=budget, price=1.0)  # the price is checked later
        problems = [_name_flags(problem.under("launch"), budget) for problem in launch.problems()]
        chosen = select_arguments(arguments.positional, *BUDGET_KEYS, "epochs", "max_duration")
        chosen += [f"--within {budget}"] if reach and budget else []
        if chosen and (reach or budget):
            flag, value = ("--reach", reach) if reach else ("--within", budget)
            text = Statement(f"{chosen[-1]} already sets the duration")
            problems.append(Problem(flag, value, text, Hint("remove one of them")))
        RecipeError.raise_if_any(problems)
    errors.raise_if_any()
    return price, int(sample), accuracy


def _read_reach(text: str) -> float:
    """Return the percentage in `text`; raises RecipeError if it is none."""
    number = text.removesuffix("%")
    if not (number.replace(".", "", 1).isdecimal() and 1 <= float(number) <= 100):
        raise RecipeError.of("--reach", text, "must be a percentage up to 100", "--reach 78")
    return float(number)


def _measures(arguments: Arguments) -> bool:
    """Return whether the command measures a recipe, and does not compare recipes."""
    return has_recipe(arguments) and not {"--within", "--reach"} & arguments.flags.keys()


def run(arguments: Arguments, price: float | None, count: int, accuracy: float | None) -> int:
    """Measure, or use an earlier measurement, and print the estimate."""
    from resnet_recipes.jobs.machine.local_plan import plan_here
    from resnet_recipes.jobs.machine.run_time import measure_time, train_epochs

    if not _measures(arguments):
        return print_candidates(arguments, price, accuracy)
    plan = plan_here(compose_recipe(arguments), say)
    price = plan.recipe.launch.price if price is None else price
    timed = dict[int, float]()
    if count:
        timed, forecast = train_epochs(plan, count, say)
    else:
        forecast = measure_time(plan, say, "--again" in arguments)
    phases = [asdict(phase) for phase in forecast.estimate.phases]
    values = _collect_values(plan, forecast, timed, price) | {"phases": phases}
    show(arguments, values, _format_estimate(plan, forecast, price), phases)
    return 0


def _collect_values(
    plan: "Plan", forecast: "RunForecast", timed: Mapping[int, float], price: float | None
) -> dict[str, object]:
    result = forecast.estimate
    return {
        "recipe": plan.recipe.name,
        "epochs": plan.epochs,
        "devices": plan.world_size,
        "training_minutes": result.minutes,
        "bounds_minutes": result.bounds,
        "evaluation_minutes": result.evaluation_minutes,
        "other_minutes": result.other_minutes,
        "most_minutes": result.max_minutes,
        "cost": None if price is None else result.cost(price),
        "source": forecast.source,
        "measured": forecast.when,
        "speeds": asdict(forecast.speeds),
        "trained": [
            {"epoch": epoch + 1, "pixels": plan.image_sizes[epoch], "seconds": seconds}
            for epoch, seconds in sorted(timed.items())
        ],
    }


def _format_estimate(plan: "Plan", forecast: "RunForecast", price: float | None) -> Iterator[str]:
    result, speeds = forecast.estimate, forecast.speeds
    rows = [
        {
            "PX": str(phase.pixels),
            "EPOCHS": f"{phase.epochs:.4g}",
            "IMAGES/S": format_number(phase.images_per_second),
            **_format_parts(speeds, phase.pixels),
            "TIME": format_clock(60 * phase.minutes),
            **({"BOTTLENECK": phase.limit} if phase.limit else {}),
        }
        for phase in result.phases
    ]
    yield from format_table(rows, ("LOADER ALONE", "STEP ALONE", "EPOCHS", "BOTTLENECK"))
    yield ""
    low, high = (format_clock(60 * minutes) for minutes in result.bounds)
    parts = {
        "training": (result.minutes, f"   between {low} and {high}" if low != high else ""),
        "evaluations": (result.evaluation_minutes, ""),
        "startup": (result.other_minutes, "   and checkpoints"),
    }
    for label, (minutes, detail) in parts.items():
        yield f"{label:11} {format_or_dash(minutes, format_minutes):>8}{detail}"
    total = format_clock(sum(round(60 * (minutes or 0.0)) for minutes, _ in parts.values()))
    yield f"wall time   {total:>8}"
    if price is not None:
        cost = format_amount(result.cost(price))
        yield f"cost        {cost:>8}   at {format_price(price)}"
    yield ""
    for note in _advise(plan, forecast):
        yield from wrap_text(note.text[:1].upper() + note.text[1:], get_width(), rest="    ")
        yield from (f"      {format_advice(advice)}" for advice in list_advice(note.fix))
        yield ""
    yield f"{forecast.source[:1].upper()}{forecast.source[1:]}."


def _format_parts(speeds: "Speeds", image_size: int) -> dict[str, str]:
    """Return the cells with the speed of each part of a step, if the parts were measured."""
    if speeds.bottlenecks:
        return {}
    cells = {"STEP ALONE": format_number(1 / speeds.seconds_at(image_size).median)}
    if speeds.loader_images_per_second:
        cells["LOADER ALONE"] = format_number(1 / speeds.load_seconds(image_size))
    return cells


def _advise(plan: "Plan", forecast: "RunForecast") -> Iterator[Note]:
    """Yield the largest cost of the run, with settings that reduce it."""
    from resnet_recipes.jobs.machine.loading import find_loading_note
    from resnet_recipes.methods import ORDER
    from resnet_recipes.planning.estimate import find_contradiction_note, find_evaluation_note

    if note := find_contradiction_note(plan, forecast.speeds):
        yield note
    if note := find_evaluation_note(plan, forecast):
        yield note
        return
    speeds = forecast.speeds
    image_size = plan.image_sizes[0]
    if speeds.bottlenecks:  # the parts of a step were not measured
        return
    if note := find_loading_note(plan, forecast):
        yield note._replace(text=f"loading {note.text}")
    limit = speeds.bottleneck_at(image_size)
    methods = plan.new_stack().methods
    if limit == "loader":
        faster = (method.suggest_faster_loading() for method in methods.values())
        fix: list[str] = [*filter(None, faster), Hint("or use more CPU cores per GPU")]
    elif limit == "all-reduce":
        fix = [Hint("use a larger bs= with a larger lr=, or fewer GPUs")]
        if not plan.recipe.precision.compress_gradients:
            fix.insert(0, "precision.compress_gradients=true")
    else:
        fix = [
            f"'methods.{method.name}={{}}'"
            for method in ORDER
            if method.makes_steps_cheaper and method.name not in methods
            if not plan.recipe.model.weights
            if not any(method().advice(plan.horizon, plan.recipe.data.train_size, ()))
        ]
    if fix:
        yield Note(f"at {image_size} px, the {limit} is the bottleneck", tuple(fix))


def print_candidates(arguments: Arguments, price: float | None, reach: float | None) -> ExitCode:
    """Print the candidates of all recipes, or of the named recipe."""
    from resnet_recipes.jobs.candidates import find_candidates
    from resnet_recipes.report.page.charts import find_pareto

    names = (
        [get_value(arguments.positional, "recipe")]
        if has_recipe(arguments)
        else Library(arguments.recipes).list_names()
    )
    budget = arguments.flags.get("--within", "")
    settings = drop_arguments(arguments.positional, "recipe")
    settings += [f"budget={budget}"] if "--within" in arguments else []
    settings += [f"launch.price={price:.12g}"] if price is not None else []
    try:
        candidates = find_candidates(
            settings, arguments.recipes, names, reach, say, needs_data=False
        )
    except RecipeError as error:
        raise type(error)(_name_flags(problem, budget) for problem in error.problems) from None
    rows = [_collect_candidate(candidate, settings) for candidate in candidates.options]
    points = [row for row in rows if row["top1_percent"] and row["minutes"]]
    front = [id(row) for row in find_pareto(points, "minutes", 1.0)]
    rows = [row | {"front": id(row) in front} for row in rows]
    show(arguments, rows, _format_candidates(candidates, rows, budget, reach, settings), rows)
    return ExitCode.DONE if rows or reach is None else ExitCode.NOT_READY


def _name_flags(problem: Problem, budget: str) -> Problem:
    """Return a problem of a budget as a problem of --within and --price; other problems as given.

    `budget` is the value of --within, or "".
    """
    if budget and problem.key in BUDGET_KEYS:
        return problem._replace(key="--within", value=budget, typed="")
    if budget and problem.key == "launch.price" and problem.kind is Kind.MISSING:
        return problem._replace(key="--price", fix=Hint("--price PER_HOUR"))
    return problem


def _collect_candidate(candidate: "Candidate", settings: Sequence[str]) -> dict[str, Any]:
    recipe, duration = candidate.plan.recipe, candidate.estimate
    price = recipe.launch.price
    program = ["resnet-train"] if recipe.data.has_images else ["resnet-recipes", "plan"]
    command = [*program, recipe.name, *settings]
    if not select_arguments(settings, *BUDGET_KEYS):
        command.append(f"epochs={recipe.max_duration.removesuffix('ep')}")
    return {
        "recipe": recipe.name,
        "epochs": candidate.plan.epochs,
        "minutes": duration and duration.total_minutes,
        "most_minutes": duration and duration.max_minutes,
        "measured": candidate.is_measured,
        "cost": duration.cost(price) if duration and price is not None else None,
        "top1_percent": candidate.accuracy and candidate.accuracy.top1,
        "accuracy": candidate.accuracy.source if candidate.accuracy else "",
        "command": shlex.join(command),
    }


def _format_table(
    candidates: "Candidates", rows: Sequence[dict[str, Any]], budget: str
) -> Iterator[str]:
    cells = [
        {
            "": "*" if row["front"] else "",
            "RECIPE": row["recipe"],
            "EPOCHS": f"{round(row['epochs'], 1):g}"
            if budget or row["epochs"].is_integer()
            else f"{candidate.plan.total_steps:,} steps",
            "TIME": format_or_dash(row["minutes"], format_minutes)
            if row["measured"] or not row["minutes"]
            else f"~{format_long_time(60 * row['minutes'])}",
            "COST": format_or_dash(row["cost"], format_amount),
            "TOP-1": format_or_dash(row["top1_percent"], "{:.1f}%".format),
            "ACCURACY": row["accuracy"] or "-",
        }
        for row, candidate in zip(rows, candidates.options, strict=True)
    ]
    for key, heads in (("cost", ["COST"]), ("top1_percent", ["TOP-1", "ACCURACY"])):
        if all(row[key] is None for row in rows):
            for row, head in product(cells, heads):
                del row[head]
    yield from format_table(cells, ("ACCURACY", "COST"))


def _format_candidates(
    candidates: "Candidates",
    rows: Sequence[dict[str, Any]],
    budget: str,
    reach: float | None,
    settings: Sequence[str],
) -> Iterator[str]:
    """Yield a table of the candidates, their commands, and the problems of recipes.

    `budget` is the value of --within, or "".
    """
    if rows:
        yield from _format_table(candidates, rows, budget)
    elif reach is not None:
        yield f"No recipe is known to reach {reach:g}% on these images with these settings."
        yield "Accuracies of your runs: resnet-recipes runs --sort top1"
        if best := [name for name in candidates.suitable[:1] if name not in candidates.skipped]:
            yield from wrap_text(f"{best[0]} is {candidates.reason}:", get_width())
            yield shlex.join(["resnet-train", *best, *settings, f"stop_at_top1={reach:g}"])
    else:
        yield "The time of a run is unknown on this machine."
    if rows and (budget or reach is not None):
        yield from ("", *(row["command"] for row in rows))
    for problem, names in candidates.weights_problems.items() if rows else ():
        text, *advice = name_as_typed(problem, ()).lines()
        yield ""
        yield from wrap_text(f"{', '.join(names)}: {text}", get_width(), rest="    ")
        yield from (f"    {line}" for line in advice)
    yield ""
    if any(row["front"] for row in rows):
        yield "* no other is more accurate in less time"
    elif rows and not any(row["accuracy"] for row in rows):
        yield "Accuracy on these images is not known before a run."
    if not all(candidate.plan.recipe.data.has_images for candidate in candidates.options):
        yield "data= is missing, so this table assumes ImageNet-1k."
    if candidates.reason and len({row["recipe"] for row in rows}) > 1:
        yield from wrap_text(f"{rows[0]['recipe']} is {candidates.reason}.", get_width())
    if any(row["minutes"] and not row["measured"] for row in rows):
        yield "~ not measured: `resnet-recipes estimate NAME ...` measures a recipe here"
    if budget and rows and candidates.untimed:
        yield f"time unknown: {join_first(sorted(candidates.untimed))}"
    yield from _format_problems(candidates, budget)


def _format_problems(candidates: "Candidates", budget: str) -> Iterator[str]:
    """Yield the skipped recipes with their problems."""
    skipped = defaultdict[Problem, list[str]](list)
    for name, problem in candidates.skipped.items():
        flagged = _name_flags(problem, budget)
        clause = "is too short" if flagged.key == "--within" else flagged.clause
        reason = flagged._replace(value=None, clause=clause, fix=(), valid=(), where="")
        skipped[name_as_typed(reason, ())].append(name)
    for problem, names in skipped.items():
        text = problem.about(problem.key)
        yield from wrap_text(f"skipped: {join_first(names)}: {text}", get_width(), rest="    ")
