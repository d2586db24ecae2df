"""Find a run or file by argument: a path, a name in ./runs, or `last`."""

import os
import re
from contextlib import suppress
from pathlib import Path

from resnet_recipes.base import names
from resnet_recipes.base.errors import Command, Hint, Kind, NotReadyError, Problem, Statement, Value
from resnet_recipes.base.model_config import NETWORKS
from resnet_recipes.base.paths import find_similar_path, parse_path
from resnet_recipes.base.suggestions import FOREIGN_COMMANDS, FOREIGN_VALUES, find_closest
from resnet_recipes.network import hub
from resnet_recipes.report.comparison import read_settings
from resnet_recipes.run_folder import CONFIG, WEIGHTS
from resnet_recipes.run_folder.runs import iterate_newest_runs, list_checkpoints, read_run

ROOT = Path("runs")
LAST = "last"  # the run that was most recently created
LIST = Command("resnet-recipes runs")


def find_run(argument: str, key: str = "RUN") -> Path:
    """Return the path that an argument names.

    Raises RecipeError if it is not a local path, and NotReadyError with the most similar name if it
    does not exist.
    """
    if path := find_run_path(key, argument):
        return path
    raise NotReadyError([make_missing_run_problem(key, argument)])


def find_network(argument: str, key: str) -> Path:
    """Return the path of a run or a file; a published network name is returned unchanged.

    For a run without weights, returns its newest checkpoint. Raises the errors of `find_run`, and
    RecipeError for an invalid name on the Hub.
    """
    if argument.startswith("hf:"):
        hub.parse_repository(key, argument)
    if argument in NETWORKS and not find_run_path(key, argument):
        raise NotReadyError.of(key, argument, "", Value(f"torchvision:{argument}"), Kind.ABSENT)
    if names.PUBLISHED_WEIGHTS.fullmatch(argument):
        return Path(argument)
    path = find_run(argument, key)
    return path if (path / WEIGHTS).exists() else next(reversed(list_checkpoints(path)), path)


def find_run_path(key: str, argument: str) -> Path | None:
    """Return the path, or the run in ./runs, that an argument names; None if neither exists.

    A run in ./runs precedes a folder of the same name that is not a run.
    """
    path = parse_path(key, argument)
    run = ROOT / argument
    if names.RUN_NAME.fullmatch(argument) and path.is_dir() and (run / CONFIG).is_file():
        return path if (path / CONFIG).is_file() else run
    if os.path.lexists(path):
        return path
    if argument == LAST:
        return next(iterate_newest_runs(ROOT), None)
    return run if os.path.lexists(run) else None


def make_missing_run_problem(key: str, argument: str) -> Problem:
    """Return the problem that no run has this name, with the most similar name."""
    runs = list_choices(key)
    if argument in (LAST, str(ROOT)):
        clause = Statement("there are no runs in ./runs yet")
        return Problem(key, argument, clause, Command("resnet-train demo"))
    name = re.sub(r"\.(pth?|safetensors)$", "", argument.rpartition("/")[2])
    name = translation.text if (translation := FOREIGN_VALUES["RUN"].get(name)) else name
    parts = Path(argument).parts  # bees/checkpoints/last.pt
    if name in FOREIGN_COMMANDS or len(parts) > 1:  # such as `runs list`
        runs = [run for run in runs if run != LAST]
    longer = [run for run in runs if name and run.startswith(name)]
    nearest = next(filter(runs.__contains__, parts), "") or find_closest(name, runs)
    nearest = nearest or (longer[0] if len(longer) == 1 else "")
    if Path(argument).parent != ROOT and (len(parts) > 1 or not nearest):
        nearest = find_similar_path(Path(argument), (".safetensors", ".pt", ".pth")) or nearest
    hint = Hint(f"pass a run (`{LIST}` lists them), a checkpoint or a weights file")
    fix = Value(nearest) if nearest else hint if "FILE" in key else LIST
    return Problem(key, argument, "", fix, kind=Kind.ABSENT)


def list_choices(key: str) -> list[str]:
    """Return `last` and the names of the runs in ./runs that an argument can name, newest first."""
    choices = list[str]()
    for index, folder in enumerate(iterate_newest_runs(ROOT)):
        is_usable = key == "RUN" or (folder / WEIGHTS).exists() or bool(list_checkpoints(folder))
        if key.startswith("--"):
            run = read_run(folder)
            is_usable = bool(run and (run.resumable or run.state == "finished"))
            if key == "--extend" and is_usable:
                with suppress(NotReadyError):
                    is_usable = read_settings(folder).get("schedule.name") == "wsd"
        if is_usable:
            choices += [folder.name] if index else [LAST, folder.name]
    return choices
