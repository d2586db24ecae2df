"""Errors that a user can act on: the key, the value, the rule, and what to type."""

from collections.abc import Iterable
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong with what the user wrote."""

    key: str              # where: "methods.mixup.alpha", or "recipes/mine.yaml:7"
    value: object         # what was written there; None if nothing was
    rule: str             # what it has to be: "must be positive"
    fix: str = ""         # what to type instead

    def under(self, section: str) -> "Problem":
        """Return the same problem with its key placed inside `section`."""
        return self._replace(key=f"{section}.{self.key}")

    def __str__(self) -> str:
        said = f"{self.key}={self.value}" if self.value is not None else self.key
        return f"{said}: {self.rule}" + (f"\n    {self.fix}" if self.fix else "")


class RecipeError(Exception):
    """Everything wrong with a command or a recipe, collected, before anything has started. Exit code 2."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem]):
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class NotReadyError(RecipeError):
    """The data or the machine must be put right before this run can start. Exit code 3."""

    exit_code = 3


class TrainingError(Exception):
    """Training had to stop, for a reason that is said in one or two sentences. Exit code 1."""

    exit_code = 1
