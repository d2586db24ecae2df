"""Errors that a user can act on: the key, the value, the rule, and what to type."""

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple, Self

SHOWN = 500  # longest value that a message shows, in characters


#: In an address: name and password, of which the password may have slashes; query or fragment.
_SECRETS = (
    (re.compile(r"://(?:[^/?#'\"\n]+|[^/:\s]+:(?!\d+/)[^?#'\"\n]+)@"), "://***@"),
    (re.compile(r"(://[^?#'\"\s]*[?#])[^'\"\s]+"), r"\1***"),
)


def masked(text: str) -> str:
    """Return a text without the passwords and tokens of the addresses in it."""
    for secret, shown in _SECRETS:
        text = secret.sub(shown, text)
    return text


class ExitCode(IntEnum):
    """How a command ended, for the shell and for Slurm."""

    DONE = 0
    FAILED = 1  # training failed, or was stopped by a second signal
    RECIPE = 2  # wrong command or recipe
    NOT_READY = 3  # the data or the machine must be fixed first
    PREEMPTED = 75  # stopped from outside, and saved; or not ready yet: type it again
    CANCELLED = 130  # Ctrl-C; a checkpoint was saved


#: After these a run can be resumed: it was asked to stop.
STOPPED = (ExitCode.PREEMPTED, ExitCode.CANCELLED)

#: After these the message says all, and every rank has the same.
REFUSED = (ExitCode.RECIPE, ExitCode.NOT_READY)


#: The rule that a setting breaks which does not exist.
NO_SETTING = "no such setting"


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
        key, value, rule, fix = map(masked, (self.key, value, self.rule, self.fix))
        shown = value if len(value) <= SHOWN else f"{value[:SHOWN]}..."
        said = key if self.value is None else f"{key}={shown}"
        return f"{said}: {rule}" + (f"\n    {fix}" if fix else "")


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

    @classmethod
    def refuse(cls, problems: Iterable[Problem | None]) -> None:
        """Raise this error of all problems, if there are any."""
        if found := [problem for problem in problems if problem]:
            raise cls(found)

    def elsewhere(self, here: object, there: str) -> Self:
        """Return this error of a copy, `here`, as one of its original."""

        def moved(said: str) -> str:
            return said.replace(str(here), there)

        return type(self)(
            Problem._make(moved(part) if isinstance(part, str) else part for part in problem)
            for problem in self.problems
        )


class NotReadyError(RecipeError):
    """The data or the machine must be fixed before this run can start."""

    exit_code = ExitCode.NOT_READY

    @classmethod
    def at(cls, place: object, rule: str, fix: str = "") -> Self:
        """Return the error of a file or folder."""
        return cls.of(str(place), None, rule, fix)


class NotYetError(NotReadyError):
    """What a run waits for is not there yet: the same command, typed later, may work."""

    exit_code = ExitCode.PREEMPTED


class TrainingError(Exception):
    """Training had to stop, for a reason that the message explains in one or two sentences."""

    exit_code = ExitCode.FAILED
