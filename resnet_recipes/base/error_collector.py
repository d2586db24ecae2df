"""Run several checks, and raise all of their problems at once."""

from itertools import chain
from types import TracebackType

from resnet_recipes.base.errors import Problem, RecipeError


class ErrorCollector:
    """Collects the errors of the blocks that use it as a context: `with errors: check()`."""

    def __init__(self) -> None:
        self._errors: list[RecipeError] = []

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(error, RecipeError):
            self._errors.append(error)
        return isinstance(error, RecipeError)

    @property
    def is_empty(self) -> bool:
        """Whether no check failed."""
        return not self._errors

    def raise_if_any(self) -> None:
        """Raise one error with all problems, each with its first advice, if there are any.

        Its exit code is the lowest: a wrong command precedes data or a machine that is not ready.
        """
        if self._errors:
            kind = type(min(self._errors, key=lambda error: error.exit_code))
            problems = list[Problem]()
            for problem in chain.from_iterable(error.problems for error in self._errors):
                if problem._replace(fix=()) not in [each._replace(fix=()) for each in problems]:
                    problems.append(problem)
            raise kind(problems)
