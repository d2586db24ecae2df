"""The runs that a command's words name: by path, by name in ./runs, or `last`."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from resnet_recipes.base import names
from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.recipe.suggestions import closest
from resnet_recipes.run_folder.runs import RunRecord, newest, read_run, runs_in

ROOT = Path("runs")
LAST = "last"  # the run that was started last
_LIST = "resnet-recipes runs   lists the runs in ./runs"
_WEIGHTS = "model.weights"


def run_place(key: str, word: str) -> Path:
    """Return the path that a word names.

    Raises NotReadyError, with the nearest name, if there is none.
    """
    place = found(key, word)
    if place is None:
        raise NotReadyError([_missing(key, word)])
    return place


def run_places(words: Iterable[str]) -> list[Path]:
    """Return the path of each word. Raises NotReadyError for all that name none."""
    places = [(word, found("RUN", word)) for word in words]
    if missing := [_missing("RUN", word) for word, place in places if place is None]:
        raise NotReadyError(missing)
    return [place for _, place in places if place]


def found(key: str, word: str) -> Path | None:
    """Return what a word names: a path, else a run in ./runs; None if there is neither."""
    path = typed_path(key, word)
    if os.path.lexists(path):
        return path
    if word == LAST:
        return next(newest(ROOT), None)
    return ROOT / word if os.path.lexists(ROOT / word) else None


def with_weights(arguments: Arguments) -> Arguments:
    """Replace each run that model.weights names by its path, which no later run changes.

    Raises RecipeError for `last` in a command that continues what it has started.
    """
    repeats = "-m" in arguments or arguments.flags.get("--resume") == "auto"
    for index, word in enumerate(arguments.words):
        key, _, value = word.partition("=")
        if key == _WEIGHTS:
            chosen = ",".join(_weights(name, repeats) for name in value.split(","))
            arguments.words[index] = f"{key}={chosen}"
    return arguments


def records(words: Iterable[str]) -> Iterator[RunRecord]:
    """Yield the runs that words name: runs, and folders of runs.

    Raises NotReadyError if a folder cannot be listed.
    """
    for place in run_places(words):
        one = read_run(place)
        try:
            yield from [one] if one else runs_in(place)
        except OSError as error:
            rule = f"cannot be listed: {error.strerror}"
            raise NotReadyError.at(place, rule, _LIST) from None


def _weights(name: str, repeats: bool) -> str:
    """Return the path of a run by its name, and any other weights as they were typed."""
    if os.path.lexists(name) or names.WEIGHTS.fullmatch(name) or not names.RUN.fullmatch(name):
        return name
    if name == LAST and repeats:
        rule = "would be another run when the same command continues"
        raise RecipeError.of(_WEIGHTS, name, rule, f"{_WEIGHTS}=runs/NAME")
    if place := found(_WEIGHTS, name):
        return str(place)
    missing = _missing(_WEIGHTS, name)
    if name == LAST or missing.fix != _LIST:  # a run like it exists
        raise NotReadyError([missing])
    return name


def _missing(key: str, word: str) -> Problem:
    runs = [folder.name for folder in newest(ROOT)]
    if word == LAST or (word == str(ROOT) and not runs):
        rule, fix = "there are no runs in ./runs yet", "resnet-train mild data=PATH   starts one"
        return Problem(key, word, rule, fix)
    meant = closest(word.rpartition("/")[2], runs)
    fix = f"did you mean {meant}?   {_LIST}" if meant else _LIST
    return Problem(key, word, "no such run, file or folder", fix)
