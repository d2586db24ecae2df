"""Find the runs, networks and images in the arguments of a command."""

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from resnet_recipes.base import names
from resnet_recipes.base.error_collector import ErrorCollector, collect
from resnet_recipes.base.errors import (
    Command,
    Hint,
    Kind,
    NotReadyError,
    Problem,
    RecipeError,
    Statement,
    Value,
)
from resnet_recipes.base.names import list_keys
from resnet_recipes.base.paths import is_fetched, parse_path
from resnet_recipes.base.suggestions import FOREIGN_VALUES
from resnet_recipes.base.text import Say, do_nothing
from resnet_recipes.command_line.arguments import (
    DATA_KEYS,
    Arguments,
    drop_arguments,
    get_value,
    select_arguments,
)
from resnet_recipes.command_line.printing import say
from resnet_recipes.command_line.recipe_arguments import (
    add_setting_problems,
    compose_recipe,
    format_command,
    has_recipe,
)
from resnet_recipes.command_line.usage import Usage
from resnet_recipes.jobs.lookup import (
    LAST,
    LIST,
    ROOT,
    find_network,
    find_run,
    find_run_path,
    list_choices,
    make_missing_run_problem,
)
from resnet_recipes.report.comparison import check_settings_file, read_all, require_run
from resnet_recipes.run_folder import CHECKPOINTS, CONFIG, WEIGHTS
from resnet_recipes.run_folder.runs import RunRecord, iterate_runs, read_run

if TYPE_CHECKING:
    from resnet_recipes.inference.trained_network import TrainedNetwork
    from resnet_recipes.jobs.resume import RunChanges

_NAMING = ("run", "run.name", "run.root")  # settings that name a run


class Resumption(NamedTuple):
    """A run to resume."""

    folder: Path
    changes: "RunChanges"


def list_records(arguments: Iterable[str]) -> list[RunRecord]:
    """Return the runs given by arguments, runs and folders of runs, each once.

    A run whose recipe cannot be read has the state "unreadable".

    Raises NotReadyError with every folder that contains no runs.
    """

    def read(argument: str) -> Iterator[RunRecord]:
        folder = find_run(argument)
        runs = [] if read_run(folder) else iterate_runs(folder)
        yield from map(check_settings_file, [*runs] or [require_run(folder)])

    return list({run.folder.resolve(): run for run in collect(read, arguments)}.values())


def read_runs(arguments: Iterable[str]) -> list[RunRecord]:
    """Read the runs given by arguments.

    Raises NotReadyError with every run that does not exist or cannot be read.
    """
    return collect(lambda argument: read_all([find_run(argument)]), arguments)


def check_network(arguments: Sequence[str], usage: Usage) -> None:
    """Raise RecipeError if the first argument is not a network, or if another is misplaced."""
    RecipeError.raise_if_any([find_missing_network_problem(arguments, usage.example)])
    errors = ErrorCollector()
    with errors:
        find_network(arguments[0], "RUN|FILE")
    root = get_value(arguments[1:], *DATA_KEYS)
    if root and not (is_fetched(root) or os.path.exists(os.path.expanduser(root))):
        from resnet_recipes.data.root import find_root_problem

        with errors:
            NotReadyError.raise_if_any([find_root_problem(root)])
    settings = [argument.partition("=")[::2] for argument in arguments[1:]]
    with errors:
        RecipeError.raise_if_any(
            Problem.unknown_setting(key, value, f"--{key} {shlex.quote(value)}")
            for key, value in settings
            if value and usage.placeholders.get(f"--{key}")
        )
    weights = get_value(arguments[1:], "model.weights")
    if weights and names.PUBLISHED_WEIGHTS.fullmatch(arguments[0]):
        clause = "is the file of the network, and comes first"
        with errors:
            fix = f"{weights} model.name={arguments[0]}"
            raise RecipeError.of("model.weights", weights, clause, fix)
    errors.raise_if_any()


def open_trained_network(arguments: Sequence[str], usage: Usage) -> "TrainedNetwork":
    """Open the network given by the first argument, with the other arguments as settings.

    Raises RecipeError if it cannot be opened with these settings.
    """
    from resnet_recipes.inference.open import SETTINGS, open_trained
    from resnet_recipes.network.open import iterate_notes

    path = find_network(arguments[0], "RUN|FILE")
    network = open_trained(path, arguments[1:], SETTINGS[usage.command[-1]])
    if path.parent.name == CHECKPOINTS and is_run(arguments[0]):
        say(f"note: the run is not finished; its newest checkpoint is {path}")
    for note in iterate_notes(network.network):
        say(f"note: {note}")
    return network


def find_missing_network_problem(arguments: Sequence[str], example: str) -> Problem | None:
    """Return a problem if the first argument cannot be a network."""
    if arguments and not is_setting(arguments[0]):
        return None
    clause = "a run folder, a checkpoint or a weights file"
    runs = list_choices("RUN|FILE")
    finished = [name for name in runs if (find_run(name) / WEIGHTS).exists()]
    run = next(iter(finished or runs), "")
    works = run and "~" not in example  # needs no images, and there are runs
    fix = (Command if works else Hint)(example.replace(LAST, run or "RUN", 1))
    return Problem("RUN|FILE", None, clause, fix, kind=Kind.MISSING)


def find_network_setting_problems(command: str, arguments: Iterable[str]) -> tuple[Problem, ...]:
    """Return the problems of the settings of a command, before it opens the network."""
    from resnet_recipes.inference.open import SETTINGS, apply_changes, parse_model
    from resnet_recipes.recipe.schema import Recipe

    settings = list(filter(is_setting, arguments))
    try:
        if changes := parse_model(settings).others:
            apply_changes(Recipe(), changes, SETTINGS[command])
    except RecipeError as error:
        return error.problems
    return ()


def is_setting(argument: str) -> bool:
    """Return whether an argument has the form key=value and is not a file."""
    key, equals, _ = argument.partition("=")
    is_key = key.replace(".", "").replace("_", "").isalnum()
    return bool(is_key and equals) and not os.path.exists(argument)


def is_run(argument: str) -> bool:
    """Return whether an argument is a run folder."""
    path = find_run_path("RUN", argument)
    return path is not None and (path / CONFIG).is_file()


def is_image(argument: str) -> bool:
    """Return whether an argument is an image or a folder of images, and not a run."""
    from resnet_recipes.data.files.listing import SUFFIXES, iterate_images

    if os.path.isdir(argument):
        return not is_run(argument) and any(iterate_images(Path(argument)))
    return argument.lower().endswith(SUFFIXES)


def find_resumed(arguments: Arguments, say: Say) -> Resumption | None:
    """Return the run given by --resume; None to start a new run.

    `say` gets the reason if no run has the settings of --resume auto.

    Raises RecipeError if the run does not exist, or if another argument than --resume RUN names a
    recipe or a run.
    """
    run_name = arguments.flags.get("--resume")
    positional = arguments.positional
    if not run_name:
        return None
    from resnet_recipes.jobs.resume import check_resume, find_match, iterate_unfinished_runs

    if run_name != "auto":
        clause = Statement("--resume names the run, and a run keeps its recipe")
        likely_run = run_name
        if not find_run_path("--resume", run_name):
            fixes = make_missing_run_problem("--resume", run_name).corrections
            likely_run = next((fix for fix in fixes if isinstance(fix, Value)), "")
        fix: str = ""
        if likely_run:
            flags = {**arguments.flags, "--resume": likely_run}
            flags.pop("--parallel", None)  # for sweeps
            fix = format_command("resnet-train", (), replace(arguments, flags=flags))
        errors = ErrorCollector()
        changes = drop_arguments(positional, "recipe", *_NAMING)
        with errors:
            RecipeError.raise_if_any(
                Problem(*argument.partition("=")[::2], clause, fix, kind=Kind.UNUSED)
                for argument in select_arguments(positional, "recipe", *_NAMING)
            )
        with errors:
            resumed = _find_run("--resume", run_name, changes)
            if errors.problems:
                check_resume(resumed, changes, do_nothing)
        errors.raise_if_any()
        return Resumption(resumed, changes)
    if has_recipe(arguments):
        errors = ErrorCollector()
        with errors:
            composed = compose_recipe(arguments)
            folder = find_match(composed, say)
            return Resumption(folder, composed) if folder else None
        wrong = {problem.key for problem in errors.problems}
        valid = [argument for argument in positional if wrong.isdisjoint(list_keys(argument))]
        with errors:
            find_match(compose_recipe(replace(arguments, positional=valid)), do_nothing)
        errors.raise_if_any()
    run_name = get_value(positional, "run.name", "run")
    root = find_run_root(positional)
    folder = root / run_name if run_name else next(iterate_unfinished_runs(root), None)
    if folder is None or not folder.exists():
        fix = Hint("resnet-train --resume auto mild data=PATH")
        clause = Statement(
            f"there is no run {folder}" if folder else f"{root} has no unfinished run"
        )
        raise RecipeError.of("--resume", "auto", clause, fix)
    return Resumption(folder, drop_arguments(positional, *_NAMING))


def _find_run(flag: str, name: str, changes: Sequence[str]) -> Path:
    """Return the run that a flag names.

    If there is none, raises RecipeError also with the problems of the settings, checked with the
    most similar run or mild.
    """
    try:
        return find_run(name, flag)
    except RecipeError as error:
        near = [
            fix for fix in error.problems[0].corrections if isinstance(fix, Value) and is_run(fix)
        ]
        recipe = str(find_run(near[0]) / CONFIG) if near else "mild"
        complete = Arguments({}, [f"recipe={recipe}", *changes])
        raise add_setting_problems(error, complete) if changes else error from None


def find_run_root(arguments: Sequence[str]) -> Path:
    """Return the folder of all runs: run.root, or its default."""
    root = get_value(arguments, "run.root")
    return parse_path("run.root", root) if root else ROOT


def check_resumed(arguments: Arguments) -> None:
    """Raise RecipeError if the run given by --resume cannot continue with these settings."""
    from resnet_recipes.jobs.resume import check_resume

    if resumed := find_resumed(arguments, do_nothing):
        check_resume(*resumed, do_nothing)


def replace_extend(arguments: Arguments) -> Arguments:
    """Replace --extend RUN by the recipe, the stable phase and the folder of RUN.

    Raises RecipeError if RUN is not a run, or if another argument contradicts --extend.
    """
    flags = dict(arguments.flags)
    if (name := flags.pop("--extend", None)) is None:
        return arguments
    if (resumed := arguments.flags.get("--resume", "auto")) != "auto":
        clause = "resumes a run, and --extend starts a new one"
        raise RecipeError.of("--resume", resumed, clause, Hint("remove one of them"))
    if typed := get_value(arguments.positional, "recipe"):
        clause = Statement("--extend names the run, and a run keeps its recipe")
        others = drop_arguments(arguments.positional, "recipe")
        fix = format_command(arguments.command, others, arguments)
        raise RecipeError.of("recipe", typed, clause, fix, Kind.UNUSED)
    _reject_last("--extend", name, arguments, "--extend NAME")
    folder = _find_run("--extend", name, arguments.positional).absolute()
    if not (folder / CONFIG).is_file():
        clause = f"is not a run folder: it has no {CONFIG}"
        raise NotReadyError.of("--extend", name, clause, LIST)
    settings = [f"recipe={folder / CONFIG}", f"run.extends={folder}"]
    if not get_value(arguments.positional, "run.root"):
        settings.append(f"run.root={folder.parent}")
    return replace(arguments, flags=flags, positional=[*settings, *arguments.positional])


def resolve_weights(arguments: Arguments) -> Arguments:
    """Replace each run in the settings of networks by its path, which later runs do not change.

    Raises RecipeError for `last` in a command that resumes its own run.
    """

    def resolve(argument: str) -> str:
        key, _, value = argument.partition("=")
        if not _is_network_setting(key):
            return argument
        return f"{key}={','.join(_find_weights(key, name, arguments) for name in value.split(','))}"

    return replace(arguments, positional=list(map(resolve, arguments.positional)))


def _is_network_setting(key: str) -> bool:
    """Return whether the value of a setting may be a run by name, or `last`."""
    if not key.startswith("methods."):
        return key == "model.weights"
    from resnet_recipes.methods import ORDER

    return any(key == f"methods.{method.name}.{method.network_setting}" for method in ORDER)


def _reject_last(key: str, name: str, arguments: Arguments, fix: str) -> None:
    """Raise RecipeError for `last` in a command that resumes its own run."""
    if name == LAST and ("-m" in arguments or arguments.flags.get("--resume") == "auto"):
        clause = "would be another run when the same command continues"
        raise RecipeError.of(key, name, clause, fix)


def _find_weights(key: str, name: str, arguments: Arguments) -> str:
    """Return the path of a run by name; other weights are returned unchanged."""
    if os.path.isdir(name) and find_run_path(key, name) == ROOT / name:
        return str(ROOT / name)
    if os.path.lexists(name) or names.PUBLISHED_WEIGHTS.fullmatch(name):
        return name
    if (ROOT / name).is_file():
        file = Path(name)
        near = file.parent if file.name == WEIGHTS else ROOT / file
        raise NotReadyError.of(key, name, "", Value(near), Kind.ABSENT)
    if not names.RUN_NAME.fullmatch(name):
        return name
    _reject_last(key, name, arguments, f"{key}=runs/NAME")
    if path := find_run_path(key, name):
        return str(path)
    missing = make_missing_run_problem(key, name)
    has_meaning = name.lower() in FOREIGN_VALUES["model.weights"]  # "none"
    if name == LAST or (isinstance(missing.fix, Value) and not has_meaning):
        raise NotReadyError([missing])
    return name
