"""The runs that a command's words name: by path, by name in ./runs, or `last`."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from resnet_recipes.base.errors import NotReadyError, Problem
from resnet_recipes.base.paths import typed_path
from resnet_recipes.measure.runs import RunRecord, newest, read_run, runs_in
from resnet_recipes.recipe.suggestions import closest

ROOT = Path("runs")
LAST = "last"  # the run that was started last
_LIST = "resnet-recipes runs   lists the runs in ./runs"


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
            raise NotReadyError([Problem(str(place), None, rule, _LIST)]) from None


def _missing(key: str, word: str) -> Problem:
    names = [folder.name for folder in newest(ROOT)]
    if word == LAST or (word == str(ROOT) and not names):
        rule, fix = "there are no runs in ./runs yet", "resnet-train mild data=PATH   starts one"
        return Problem(key, word, rule, fix)
    meant = closest(word.rpartition("/")[2], names)
    fix = f"did you mean {meant}?   {_LIST}" if meant else _LIST
    return Problem(key, word, "no such run, file or folder", fix)
