"""Run several checks and raise all of their problems at once."""

import os
from collections.abc import Callable, Iterable
from typing import TypeVar

from resnet_recipes.base.errors import Kind, Problem, RecipeError

Given = TypeVar("Given")
Read = TypeVar("Read")


class ErrorCollector:
    """Collects the errors of the blocks that use it as a context: `with errors: check()`."""

    def __init__(self) -> None:
        self._errors: list[RecipeError] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, traceback: object) -> bool:
        if isinstance(error, RecipeError):
            self._errors.append(error)
        return isinstance(error, RecipeError)

    @property
    def problems(self) -> list[Problem]:
        """All problems; of several with the same place, key, value and clause, the first.

        A later one replaces it if only the later has a fix.
        """
        problems = dict[tuple[str, ...], Problem]()
        for problem in (problem for error in self._errors for problem in error.problems):
            is_path = problem.kind is Kind.ABSENT
            value = os.path.abspath(str(problem.value)) if is_path else str(problem.value)
            same = problem.where, problem.key, value, problem.clause
            if same not in problems or (problem.corrections and not problems[same].corrections):
                problems[same] = problem
        return [*problems.values()]

    @property
    def error_class(self) -> type[RecipeError]:
        """The error with the lowest exit code: a wrong command precedes data that is not ready."""
        return type(min(self._errors, key=lambda error: error.exit_code))

    def raise_if_any(self) -> None:
        """Raise one error of this class with all problems, if there are any."""
        if self._errors:
            raise self.error_class(self.problems)


def collect(read: Callable[[Given], Iterable[Read]], items: Iterable[Given]) -> list[Read]:
    """Return the results of `read` for all items. Raises one error with the problems of all."""
    errors = ErrorCollector()
    results = list[Read]()
    for item in items:
        with errors:
            results += read(item)
    errors.raise_if_any()
    return results
