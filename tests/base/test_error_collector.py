"""Problems that several checks find."""

import os

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import Hint, Kind, Problem, RecipeError, Value

HINT, FIX = Hint("a run or a file"), Value("first")


def collect_missing(*found: tuple[str, str]) -> list[Problem]:
    """Return what is left of the problems of a missing file, with their values and advice."""
    errors = ErrorCollector()
    for value, advice in found:
        with errors:
            raise RecipeError.of("teacher", value, "", advice, Kind.ABSENT)
    return errors.problems


def test_same_missing_path_is_one_problem():
    (problem,) = collect_missing((os.path.abspath("firts"), HINT), ("firts", FIX), ("firts", HINT))
    assert (problem.value, problem.fix) == ("firts", FIX)


def test_problem_without_advice_replaces_no_hint():
    (problem,) = collect_missing(("firts", HINT), ("firts", ""))
    assert problem.fix == HINT
    assert len(collect_missing(("firts", HINT), ("second", HINT))) == 2
