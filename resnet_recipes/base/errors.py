"""Errors that a user can act on: the key, the value, the rule, and what to type."""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple, Self

SHOWN = 500  # longest value that a message shows, in characters


class ExitCode(IntEnum):
    """How a command ended, for the shell and for Slurm."""

    DONE = 0
    FAILED = 1  # training failed, or was stopped by a second signal
    RECIPE = 2  # wrong command or recipe
    NOT_READY = 3  # the data or the machine must be fixed first
    PREEMPTED = 75  # stopped from outside; a checkpoint was saved
    CANCELLED = 130  # Ctrl-C; a checkpoint was saved


class Problem(NamedTuple):
    """One thing that is wrong with what the user wrote."""

    key: str  # where: "methods.mixup.alpha", or "recipes/mine.yaml:7"
    value: object  # what was written there; None if nothing was
    rule: str  # the rule that was broken: "must be positive"
    fix: str = ""  # what to type instead

    def under(self, section: str) -> "Problem":
        """Return the same problem with its key placed inside `section`."""
        return self._replace(key=f"{section}.{self.key}")

    def __str__(self) -> str:
        value = str(self.value).lower() if isinstance(self.value, bool) else str(self.value)
        shown = value if len(value) <= SHOWN else f"{value[:SHOWN]}..."
        said = self.key if self.value is None else f"{self.key}={shown}"
        return f"{said}: {self.rule}" + (f"\n    {self.fix}" if self.fix else "")


class RecipeError(Exception):
    """Everything wrong with a command or a recipe, collected before anything has started."""

    exit_code = ExitCode.RECIPE

    def __init__(self, problems: Iterable[Problem]):
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def of(cls, key: str, value: object, rule: str, fix: str = "") -> Self:
        """Return the error of a single problem."""
        return cls([Problem(key, value, rule, fix)])


class NotReadyError(RecipeError):
    """The data or the machine must be fixed before this run can start."""

    exit_code = ExitCode.NOT_READY

    @classmethod
    def at(cls, place: object, rule: str, fix: str = "") -> Self:
        """Return the error of a file or folder."""
        return cls.of(str(place), None, rule, fix)


class TrainingError(Exception):
    """Training had to stop, for a reason that the message explains in one or two sentences."""

    exit_code = ExitCode.FAILED
