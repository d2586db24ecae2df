"""`resnet-recipes job --for ENGINE NAME [key=value ...]`: print a run or a sweep as a job."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base.duration import parse_budget, parse_time
from resnet_recipes.base.errors import Command, Hint, Kind, Problem, RecipeError, Statement
from resnet_recipes.base.extras import find_needed_extras
from resnet_recipes.base.limits import find_number_problem
from resnet_recipes.base.suggestions import guess_flag_value
from resnet_recipes.base.suggestions.values import read_time
from resnet_recipes.command_line.arguments import (
    BUDGET_KEYS,
    GPUS_KEYS,
    NAME_KEYS,
    Arguments,
    drop_arguments,
    get_value,
    name_as_typed,
    select_arguments,
)
from resnet_recipes.command_line.printing import say
from resnet_recipes.command_line.recipe_arguments import format_command, has_recipe
from resnet_recipes.command_line.usage import Scope, Usage
from resnet_recipes.jobs.engines import (
    STORAGE,
    Allocation,
    Job,
    kubernetes,
    make_title,
    skypilot,
    slurm,
    torchx,
)
from resnet_recipes.recipe.library import Library

if TYPE_CHECKING:
    from resnet_recipes.commands.sweep import Runs
    from resnet_recipes.recipe.compose import ComposedRecipe

USAGE = Usage(
    "resnet-recipes job --for ENGINE NAME [key=value ...]",
    "print a job file for Slurm, SkyPilot, Kubernetes or torchx",
    "resnet-recipes job --for slurm hot data=/data/imagenet nodes=2 > job.sh",
    {
        "--for ENGINE": "slurm, skypilot, kubernetes (Kubeflow Trainer) or torchx",
        "--storage NAME": "storage of the runs, mounted at /storage: a bucket URL or a volume "
        "(skypilot), or a claim (kubernetes)",
        "--time HH:MM:SS": "slurm: time limit (default 24:00:00, or budget= plus 15 minutes)",
        "-m": "slurm: a job array, one job per combination of values: mild,medium seed=1,2,3",
        "--parallel N": "slurm: with -m, at most N jobs at a time",
    },
    "The job resumes the run until it is finished. nodes=N sets the number of machines (default\n"
    "1); gpus=N sets the GPUs per machine (default 8, or 1 for fewer than 64 images per step).",
    settings=Scope.RECIPE,
)

#: Functions that write a single run as a job, for engines without job arrays.
_ENGINES = {
    "skypilot": skypilot.format_script,
    "kubernetes": kubernetes.format_script,
    "torchx": torchx.format_script,
}

#: Engines whose machines cannot access local disks, with an example of storage to mount.
_STORAGE = {"skypilot": "s3://my-bucket/mine", "kubernetes": "my-claim"}

_STAND_IN = "run.name=run-1"  # replaces the name while the recipe is checked

AUTO_GPUS_PER_NODE = 8  # with gpus=auto

SMALL_BATCH = 64  # images per step; with fewer, as in finetune, the default is one GPU


def check(arguments: Arguments) -> None:
    """Raise RecipeError if the engine, the number of nodes, or a folder is wrong."""
    if not arguments.positional:
        names = tuple(Library().list_readable_names())
        fix = Command(USAGE.example)
        raise RecipeError([Problem("recipe", None, "", fix, names, Kind.MISSING)])
    nodes, changes = _split_nodes_and_changes(arguments.positional)
    problems = [*_find_setting_problems(nodes, changes), *_find_engine_problems(arguments)]
    if not problems:
        problems += _find_folder_problems(arguments, nodes, changes)
    if select_arguments(changes, *BUDGET_KEYS) and not has_recipe(arguments):
        problems.append(Problem("recipe", None, "", "recipe=mild", kind=Kind.MISSING))
    RecipeError.raise_if_any(problems)


def run(arguments: Arguments) -> int:
    """Print the job with `nodes=` nodes and `gpus=` GPUs per node."""
    nodes, changes = _split_nodes_and_changes(arguments.positional)
    recipe = get_value(arguments.positional, "recipe")
    print(_format_job(arguments, recipe, changes, int(nodes.removeprefix("nodes="))), end="")
    return 0


def _split_nodes_and_changes(positional: Sequence[str]) -> tuple[str, list[str]]:
    """Return the setting of nodes, and the settings of the recipe."""
    nodes = ["nodes=1", *select_arguments(positional, "nodes")][-1]
    return nodes, drop_arguments(positional, "recipe", "nodes")


def _format_job(arguments: Arguments, recipe: str, changes: list[str], nodes: int) -> str:
    from resnet_recipes.commands.sweep import compose_points
    from resnet_recipes.recipe.hydra_compose import list_points
    from resnet_recipes.report.comparison import format_settings

    engine = arguments.flags["--for"]
    settings = [f"recipe={recipe}", *changes]
    points = list_points(settings) if "-m" in arguments else [settings]
    # the runs of a sweep get their names from `resnet-train -m`; a run to extend may be on storage
    # that this machine cannot access
    unseen = {"--resume": "auto"} if engine in _STORAGE else {}
    try:
        runs = compose_points(points, Arguments(unseen, command=arguments.command), (_STAND_IN,))
    except RecipeError as error:
        raise type(error)(map(partial(_suggest_array, arguments), error.problems)) from None
    (name, (point, _)), *_ = runs.items()
    config = point.recipe
    usual = AUTO_GPUS_PER_NODE if config.batch.global_size >= SMALL_BATCH else 1
    gpus = usual if config.launch.gpus == "auto" else int(config.launch.gpus)
    allocation = Allocation(nodes, gpus, config.launch.device == "cpu")
    values = format_settings(asdict(config)).values()
    extras = find_needed_extras(config.data.root, values, config.log.to)
    secrets = [name for variables in extras.values() for name in variables]
    if absent := [name for name in secrets if not os.environ.get(name)]:
        say(f"note: the job logs in with {', '.join(absent)}: not set here")
    if engine not in _STORAGE:
        title = "warning: with the images on this machine, the job will fail"
        _say_problems(title, _find_image_problems(point, allocation), settings)
        title = "note: the job needs files that this machine does not have"
        _say_problems(title, _find_file_problems(point), settings)
    if engine == "slurm":
        job = Job(make_title(recipe), drop_arguments(settings, *GPUS_KEYS), allocation)
        return _format_slurm(arguments, job, runs)
    if engine in _STORAGE and point.origin.entry.origin != "packaged":
        clause = "is a file on this machine, but not on the machines of the job"
        fix = Hint("use a packaged recipe, with your changes as key=value")
        raise RecipeError.of("recipe", recipe, clause, fix)
    if engine in _STORAGE:
        title = "warning: without the images on its machines, the job will fail"
        _say_problems(title, _find_mount_problems(config.data.root), settings)
    storage = arguments.flags.get("--storage", "")
    return _ENGINES[engine](
        Job(name, drop_arguments(settings, *GPUS_KEYS), allocation, storage, list(extras), secrets)
    )


def _suggest_array(arguments: Arguments, problem: Problem) -> Problem:
    """Return a problem with a job array as its fix if it is a sweep without -m."""
    from resnet_recipes.recipe.hydra_compose import SWEEP

    command = format_command("resnet-recipes job -m", arguments.positional, arguments)
    fix = command if arguments.flags["--for"] == "slurm" else Hint("only slurm has job arrays")
    return problem.replace_advice(SWEEP, fix)


def _find_image_problems(point: "ComposedRecipe", allocation: Allocation) -> tuple[Problem, ...]:
    """Return the conflicts of a recipe with its images, if this machine can access them."""
    from resnet_recipes.data import survey_images
    from resnet_recipes.planning.planner import make_plan

    if not os.path.exists(point.recipe.data.root):
        return ()
    ranks = allocation.nodes * allocation.ranks
    try:
        make_plan(point.recipe, survey_images(point.recipe.data), ranks, point.origin, False)
    except RecipeError as error:
        return error.problems
    return ()


def _say_problems(title: str, problems: Iterable[Problem], arguments: Sequence[str]) -> None:
    typed = (name_as_typed(problem, arguments) for problem in problems)
    if lines := [line for problem in typed for line in problem.lines()]:
        say(title, *(type(line)(f"      {line}") for line in lines))


def _find_file_problems(point: "ComposedRecipe") -> Iterator[Problem]:
    """Yield the problems of images and weights that are not on this machine."""
    root, weights = point.recipe.data.root, point.recipe.model.weights
    if root and "://" not in root and not os.path.exists(root):
        is_relative = os.path.relpath(root).split(os.sep)[0] != os.pardir
        clause = "the job looks in the folder where you start it" if is_relative else ""
        yield Problem("data.root", root, clause, kind=Kind.ABSENT)
    if weights and not point.network:
        from resnet_recipes.network.pretrained import open_weights

        try:
            open_weights(point.recipe.model)
        except RecipeError as error:
            yield from error.problems


def _find_mount_problems(root: str) -> Iterator[Problem]:
    """Yield the problem of images that are neither on the mounted storage nor in a bucket."""
    if root and "://" not in root and STORAGE not in (root, *map(str, Path(root).parents)):
        clause = f"is not mounted: the job mounts only {STORAGE}"
        yield Problem("data.root", root, clause, f"data={STORAGE}/{Path(root).name}")


def _format_slurm(arguments: Arguments, job: Job, runs: "Runs") -> str:
    """Return the script of one run, or of an array of runs.

    Raises RecipeError if the runs request different GPUs.
    """
    launches = [point.recipe.launch for point, _ in runs.values()]
    if any(replace(launch, budget="") != replace(launches[0], budget="") for launch in launches):
        clause = Statement("all jobs of an array must request the same GPUs")
        fix = Hint("use one value for gpus and each launch setting")
        raise RecipeError.of("-m", None, clause, fix)
    budgets = [parse_budget(launch.budget, launch.price) for launch in launches if launch.budget]
    usual = "24:00:00"
    if len(budgets) == len(runs):
        usual = slurm.format_time(max(budgets) + slurm.START_SECONDS)
    time = arguments.flags.get("--time", usual)
    if time.isdecimal():
        hours = slurm.format_time(3600 * int(time))
        say(f"note: Slurm reads --time {time} as {time} minutes; in hours: --time {hours}")
    if "-m" not in arguments:
        return slurm.format_script(job, time)
    parallel = int(arguments.flags.get("--parallel", "0"))
    chained = _chain_stable_phases(runs, job.allocation.nodes * job.allocation.ranks)
    return slurm.format_array(chained, job.allocation, time, parallel or None)


def _chain_stable_phases(runs: "Runs", ranks: int) -> dict[str, list[str]]:
    """Return the arguments of each run, which may continue the stable phase of another run."""
    from resnet_recipes.planning.plan import IMAGENET_FACTS
    from resnet_recipes.planning.planner import make_plan
    from resnet_recipes.planning.stable_phase import find_chains

    plans = {}
    arguments = {
        name: drop_arguments(arguments, *GPUS_KEYS) for name, (_, arguments) in runs.items()
    }
    for name, (point, _) in runs.items():
        recipe = point.recipe
        if recipe.schedule.name == "wsd" and not recipe.launch.budget:
            data = replace(recipe.data, root="")
            model = replace(recipe.model, num_classes="auto")
            here = replace(recipe, data=data, model=model)
            plans[name] = make_plan(here, IMAGENET_FACTS, ranks, reads_teachers=False)
    for name, other in find_chains(plans).items():
        arguments[name].append(f"run.extends={other}")
    return arguments


def _find_engine_problems(arguments: Arguments) -> Iterator[Problem]:
    """Yield the problems of the engine, and of flags that belong to another engine."""
    engine = arguments.flags.get("--for")
    engines = ("slurm", *_ENGINES)
    if not engine:
        yield Problem("--for", None, "", "--for slurm", engines, Kind.MISSING)
    elif engine not in engines:
        torchrun = Hint("`resnet-train --help` shows how to train with torchrun")
        likely = guess_flag_value("--for", engine, engines)
        fix = likely or torchrun
        yield Problem("--for", engine, "unknown engine", fix, engines, Kind.UNKNOWN, engine)
        engine = likely
    if engine in ("slurm", None):
        yield from _find_slurm_problems(arguments)
    if engine not in engines:
        return
    for flag in ("--time", "-m", "--parallel"):
        if engine != "slurm" and flag in arguments:
            yield Problem(
                flag, arguments.flags[flag] or None, "is only for Slurm", kind=Kind.UNUSED
            )
    if "--storage" in arguments and engine not in _STORAGE:
        clause = f"is only for {' and '.join(_STORAGE)}"
        yield Problem("--storage", arguments.flags["--storage"], clause, kind=Kind.UNUSED)


def _find_slurm_problems(arguments: Arguments) -> Iterator[Problem]:
    time = arguments.flags.get("--time", "24:00:00")
    parallel = arguments.flags.get("--parallel", "1")
    if not (length := slurm.parse_seconds(time)):
        rule = "must be a time limit as Slurm accepts it"
        yield Problem("--time", time, rule, _read_limit(time) or "--time 24:00:00")
    elif length < slurm.MIN_JOB_SECONDS:
        least = slurm.MIN_JOB_SECONDS // 60
        rule = f"must be at least {least} minutes: the run saves 3 minutes before the limit"
        hours = "1:00:00"
        if time.isdecimal():
            rule = f"is in minutes, and {rule}"
            hours = slurm.format_time(3600 * int(time))
        yield Problem("--time", time, rule, f"--time {hours}")
    if "--parallel" in arguments and "-m" not in arguments:
        yield Problem("--parallel", parallel, "is only for a sweep", "-m")
    elif problem := find_number_problem("--parallel", parallel, 1):
        yield problem


def _read_limit(time: str) -> str:
    """Return the flag for a time such as 2h or 90m; "" if it is not a valid time limit."""
    text = read_time(time)
    try:
        limit = slurm.format_time(parse_time(text)) if text else ""
    except ValueError:  # too long
        return ""
    return f"--time {limit}" if slurm.parse_seconds(limit) >= slurm.MIN_JOB_SECONDS else ""


def _find_setting_problems(nodes: str, changes: Sequence[str]) -> Iterator[Problem]:
    for argument in select_arguments(changes, *NAME_KEYS):
        yield Problem(argument, None, "is set by the job, which names the run", kind=Kind.UNUSED)
    for argument in select_arguments(changes, "launch.max_restarts") if nodes != "nodes=1" else ():
        clause = "works on one node only; on several, the job itself is restarted"
        yield Problem(argument, None, clause, kind=Kind.UNUSED)
    fix = "nodes=1" if nodes == "nodes=0" else "nodes=2"
    if problem := find_number_problem("nodes", nodes.removeprefix("nodes="), 1, fix=fix):
        yield problem


def _find_folder_problems(
    arguments: Arguments, nodes: str, changes: Sequence[str]
) -> Iterator[Problem]:
    engine = arguments.flags["--for"]
    storage = arguments.flags.get("--storage")
    settings = dict(argument.partition("=")[::2] for argument in changes)
    root = settings.get("run.root")
    data = settings.get("data") or settings.get("data.root")
    if engine in _STORAGE:
        if not storage:
            clause = "the storage that keeps the runs when the machines are gone"
            fix = Hint(f"--storage {_STORAGE[engine]}")
            yield Problem("--storage", None, clause, fix, kind=Kind.MISSING)
        elif "://" in storage and (engine == "kubernetes" or nodes != "nodes=1"):
            clause = "is a bucket; Kubernetes and several nodes need a shared volume"
            yield Problem("--storage", storage, clause, "--storage my-volume")
        if root:
            yield Problem("run.root", root, "is set by the job: /storage/runs", kind=Kind.UNUSED)
        if data and not data.startswith("/") and "://" not in data:
            clause = "must be an absolute path on the machines of the job"
            yield Problem("data", data, clause, "data=/storage/imagenet")
    elif engine == "torchx" and nodes != "nodes=1" and not (root or "").startswith("/"):
        clause = "must be an absolute path that all nodes can access"
        yield Problem("run.root", root, clause, Hint("run.root=/a/shared/folder"))
