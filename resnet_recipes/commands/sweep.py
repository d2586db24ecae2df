"""`resnet-train -m`: one run for each combination of values."""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from resnet_recipes import cuda
from resnet_recipes.base.cores import count_cores
from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import Command, Hint, Kind, Problem, RecipeError, Statement
from resnet_recipes.base.limits import find_number_problem
from resnet_recipes.base.money import format_amount
from resnet_recipes.base.text import (
    Snippet,
    format_clock,
    format_count,
    format_long_time,
    format_number,
    wrap_text,
)
from resnet_recipes.command_line.arguments import (
    GPUS_KEYS,
    NAME_KEYS,
    Arguments,
    drop_arguments,
    get_value,
    list_typed_words,
    select_arguments,
)
from resnet_recipes.command_line.printing import get_page_width, say, show
from resnet_recipes.command_line.recipe_arguments import compose_recipe, generate_demo, plan_command
from resnet_recipes.commands.plan import collect_values, format_plan
from resnet_recipes.commands.runs import format_runs, rank_settings
from resnet_recipes.data.base import DataFacts
from resnet_recipes.jobs.checks import check_validation_images
from resnet_recipes.jobs.extension import find_stable_state
from resnet_recipes.jobs.machine.budget import fit_duration
from resnet_recipes.jobs.machine.run_time import explain_unknown_time, predict_time
from resnet_recipes.jobs.ranks import external_launcher
from resnet_recipes.jobs.sweep import Sweep, make_slots
from resnet_recipes.network.load import Network
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.stable_phase import find_chains
from resnet_recipes.recipe.compose import ComposedRecipe
from resnet_recipes.recipe.frozen_recipe import freeze
from resnet_recipes.recipe.hydra_compose import list_points
from resnet_recipes.recipe.sections import LaunchConfig, RunConfig
from resnet_recipes.recipe.strict_yaml import shorten_path
from resnet_recipes.run_folder.facts import count_pflops
from resnet_recipes.run_folder.runs import read_run

_FRACTION = re.compile(r"(?<=\d)/(?=\d)")  # the slash of a fraction, as in data.fold=1/5

#: The recipe and the arguments of each run, by name.
Runs = dict[str, tuple[ComposedRecipe, list[str]]]


def check(arguments: Arguments) -> None:
    """Raise RecipeError if an argument does not work in a sweep."""
    RecipeError.raise_if_any([*_find_run_problems(arguments), *_find_slot_problems(arguments)])


def run(arguments: Arguments) -> int:
    """Compose every run, then train all; with --dry-run only list them."""
    runs, plans = _plan_runs(arguments)
    gpus = cuda.find_gpus().count
    parallel = int(arguments.flags.get("--parallel", "1"))
    before = find_chains(
        {n: plan for n, plan in plans.items() if not runs[n][0].recipe.launch.budget}
    )
    lines = _describe_sweep(runs, plans, before, arguments.flags)
    if "--dry-run" in arguments:
        changes = _find_changes(runs)
        values = [
            {"run": name, "changes": changes[name], **collect_values(plan)}
            for name, plan in (plans.items() if "--json" in arguments else ())
        ]
        show(arguments, values, lines)
        return 0
    say(*lines)
    for plan in {str(plan.recipe.data): plan for plan in plans.values()}.values():
        generate_demo(plan.recipe)
        check_validation_images(plan)
    root = Path(shorten_path(Path(next(iter(plans.values())).recipe.run.root)))
    flags = ["--recipes", arguments.flags["--recipes"]] if "--recipes" in arguments else []
    flags += ["--verbose"] if "--verbose" in arguments else []
    run_arguments = {name: [*run_arguments, *flags] for name, (_, run_arguments) in runs.items()}
    parents = {name: (other, plans[other].stable_steps) for name, other in before.items()}
    slots = make_slots(parallel, gpus, count_cores())
    code = Sweep(root, run_arguments, say, slots, parents).train()
    if records := [record for name in runs if (record := read_run(root / name))]:
        print(*format_runs(records), *rank_settings(records, _find_changes(runs)), sep="\n")
    if code:
        say(Snippet(f"resume the sweep: {Command.of(*list_typed_words())}"))
    return code


def _plan_runs(arguments: Arguments) -> tuple[Runs, dict[str, Plan]]:
    """Return the runs, and the plan of each. Raises RecipeError with the problems of all runs."""
    is_parallel = arguments.flags.get("--parallel", "1") != "1"
    shared = ["gpus=1"] if is_parallel and cuda.find_gpus().count else []
    settings = drop_arguments(arguments.positional, *NAME_KEYS, *(GPUS_KEYS if shared else ()))
    runs = compose_points(list_points([*settings, *shared]), arguments)
    facts = dict[str, DataFacts]()
    plans = dict[str, Plan]()
    errors = defaultdict[str, ErrorCollector](ErrorCollector)
    for name, (point, point_arguments) in runs.items():
        with errors[get_value(point_arguments, "recipe")]:
            plan = plan_command(point, arguments, facts)
            forecast = predict_time(plan) if point.recipe.launch.budget else None
            plans[name] = fit_duration(plan, forecast) if forecast else plan
    _raise_problems(errors)
    return runs, plans


def compose_points(
    points: list[list[str]], arguments: Arguments, extra: Sequence[str] = ()
) -> Runs:
    """Return the recipe and the arguments of each point, by the name of its run.

    `extra` are additional arguments for every run. Raises RecipeError with the problems of all
    points.
    """
    runs: Runs = {}
    networks = dict[str, Network]()
    errors = defaultdict[str, ErrorCollector](ErrorCollector)
    shared = set.intersection(*map(set, points))
    for point_arguments in points:
        with errors[get_value(point_arguments, "recipe")]:
            point = compose_recipe(
                replace(arguments, positional=[*point_arguments, *extra]),
                "--dry-run" not in arguments,
                networks,
            )
            name = _name_run(point, [text for text in point_arguments if text not in shared])
            if not select_arguments(point_arguments, "recipe"):  # a budget selected the recipe
                point_arguments = [f"recipe={point.origin.entry.name}", *point_arguments]
            runs[name] = point, point_arguments
    _raise_problems(errors)
    return runs


def _raise_problems(errors: Mapping[str, ErrorCollector]) -> None:
    """Raise the errors by recipe; a hint names the recipes of a problem that not all have."""
    recipes = defaultdict[str, list[str]](list)
    every = ErrorCollector()
    for recipe, collector in errors.items():
        for problem in collector.problems:
            recipes[str(problem[:3])].append(recipe)
        with every:
            collector.raise_if_any()
    problems = list[Problem]()
    for problem in every.problems:
        names = recipes[str(problem[:3])]
        hint = Hint(f"this concerns only recipe={','.join(names)}")
        is_clear = len(names) == len(errors) or problem.key == "recipe"
        problems.append(problem if is_clear else problem._replace(fix=(*problem.advice, hint)))
    if problems:
        raise every.error_class(problems)


def _find_run_problems(arguments: Arguments) -> Iterator[Problem]:
    """Yield arguments that do not work in a sweep."""
    for argument in select_arguments(arguments.positional, *NAME_KEYS):
        yield Problem(argument, None, "names one run, but a sweep names its own", kind=Kind.UNUSED)
    if "--resume" in arguments:
        clause = "cannot be used with -m: the same command continues a sweep"
        yield Problem("--resume", None, clause, kind=Kind.UNUSED)
    if "--check" in arguments:
        yield Problem("--check", None, "tries one new run", Hint("remove -m"))
    if by := external_launcher.find_launcher():
        yield Problem("-m", None, f"starts each run itself and cannot run under {by}")


def _find_slot_problems(arguments: Arguments) -> Iterator[Problem]:
    """Yield the problems of --parallel."""
    gpus = cuda.find_gpus().count
    parallel = arguments.flags.get("--parallel", "1")
    available, unit = (gpus, "GPU") if gpus else (count_cores(), "core")
    if problem := find_number_problem("--parallel", parallel, 1, available):
        yield problem._replace(fix=Hint(f"this machine has {format_count(available, unit)}"))
    elif int(parallel) > 1 and gpus:
        for argument in select_arguments(arguments.positional, *GPUS_KEYS):
            yield Problem(
                argument, None, Statement("--parallel gives each run one GPU"), kind=Kind.UNUSED
            )


def _describe_sweep(
    runs: Runs, plans: Mapping[str, Plan], before: Mapping[str, str], flags: Mapping[str, str]
) -> Iterator[str]:
    """Yield the plan of the first run, the differences of each run, and the totals."""
    parallel = int(flags.get("--parallel", "1"))
    if has_plan := "--no-plan" not in flags:
        yield from (*format_plan(plans[next(iter(runs))], full="--verbose" in flags), "")
    order = "one after another" if parallel == 1 else f"{parallel} at a time"
    several = f", {order}{', the first as above' * has_plan}" if len(runs) > 1 else ""
    yield f"{format_count(len(runs), 'run')}{several}:"
    changes_by_run = _find_changes(runs)
    seconds = 0
    cost = 0.0
    pflops = 0.0
    saved = 0.0
    format_total = format_clock
    sources: Counter[str] = Counter()
    for name, (point, _) in runs.items():
        plan = plans[name]
        other = before.get(name)
        time = ""
        total = sum(plan.flops) / 1e15
        skipped = _count_skipped_pflops(plan, plans[other] if other else None)
        pflops += total - skipped
        saved += skipped
        if forecast := predict_time(plan):
            fraction = 1 - skipped / total
            run_seconds = forecast.round_time(60 * fraction * forecast.estimate.total_minutes)
            seconds += run_seconds
            cost += fraction * forecast.estimate.cost(point.recipe.launch.price or 0.0)
            time = f"  {forecast.format_time(run_seconds)}"
            format_total = format_total if forecast.when else format_long_time
        sources[forecast.source if forecast else explain_unknown_time(plan)] += 1
        yield f"  {name}{time}"
        if changes := changes_by_run[name]:
            yield f"    {' '.join(changes)}{f', from the stable phase of {other}' if other else ''}"
    note = f"; shared stable phases save {format_number(saved)}" if saved else ""
    yield f"{format_number(pflops)} PFLOPs of training in total{note}"
    if seconds:
        runs_at_once = parallel if cuda.find_gpus().count else 1  # on a CPU, they share the cores
        money = f": {format_amount(cost / runs_at_once)}" if cost else ""
        yield f"about {format_total(seconds / runs_at_once)} in total{money}"
    for source, count in sources.items():
        which = "all times" if len(sources) == 1 else f"time of {count} of {len(runs)} runs"
        yield from wrap_text(f"{which}: {source}", get_page_width(), rest="    ")


def _find_changes(runs: Runs) -> dict[str, list[str]]:
    """Return the arguments of each run that not all runs share."""
    shared = set.intersection(*(set(arguments) for _, arguments in runs.values()))
    return {name: [text for text in run[1] if text not in shared] for name, run in runs.items()}


def _count_skipped_pflops(plan: Plan, parent: Plan | None) -> float:
    """Return the PFLOPs of the stable phase that a run takes from `parent` or an earlier run."""
    saved_state = None if parent else find_stable_state(plan)
    start = parent.stable_steps if parent else saved_state.step if saved_state else 0
    return count_pflops(plan.flops, plan.steps_per_epoch, plan.total_steps, start)


def _name_run(point: ComposedRecipe, varying: list[str]) -> str:
    """Return the name of a run.

    It contains the recipe, the settings that vary, and a digest of everything that affects the
    result.
    """
    launch = LaunchConfig(budget=point.recipe.launch.budget)  # it determines the duration
    recipe = replace(point.recipe, run=RunConfig(), launch=launch)
    parts = [argument.partition("=") for argument in drop_arguments(varying, "recipe")]
    labels = [
        ("no" if key.startswith("~") else "")
        + re.sub(r"[^A-Za-z0-9.]+", "", f"{key.rpartition('.')[2]}{_FRACTION.sub('of', value)}")
        for key, _, value in parts
    ]
    digest = hashlib.sha256(freeze(recipe).encode()).hexdigest()[:8]
    return "-".join([recipe.name[:40], *filter(None, ["-".join(labels)[:60]]), digest])
