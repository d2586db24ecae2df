"""Errors that a user can act on: `Problem` is data, and its `lines` are the only sentences.

`Problem(key, value, clause, fix, valid, kind)`: `fix` is a command, a setting or a value that works
if it is pasted, several as a tuple, and prose there is a `Hint`. Allowed values go to `valid`, not
into the clause: Problem("data.fit", "x", "", valid=("crop", "pad")). Where a word has
no place, `kind=Kind.UNUSED` advises to remove it. Code decides by `key`, `kind`, `valid` and
`fixes`; none reads a clause or a message.
"""

import re
import shlex
from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Self

from resnet_recipes.base import names

SHOWN = 500  # longest value that a message shows, in characters


#: In an address: name and password, of which the password may have slashes; query or fragment.
_SECRETS = (
    (re.compile(r"://(?:[^/?#'\"\n]+|[^/:\s]+:(?!\d+/)[^?#'\"\n]+)@"), "://***@"),
    (re.compile(r"(://[^?#'\"\s]*[?#])[^'\"\s]+"), r"\1***"),
)


def masked(text: str) -> str:
    """Return a text without the passwords and tokens of the addresses in it."""
    for secret, replacement in _SECRETS:
        text = secret.sub(replacement, text)
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


class Kind(StrEnum):
    """What sort of mistake a problem is."""

    WRONG = "wrong"  # the value breaks a rule
    UNKNOWN = "unknown"  # nothing has this name: no setting, command, option, flag, method, recipe
    MISSING = "missing"  # it has to be given
    ABSENT = "absent"  # the file, folder or run does not exist
    UNUSED = "unused"  # it has no place or no effect here: remove it


class Hint(str):
    """A fact that helps, which cannot be pasted: "mild uses lr=2.048"."""


class Value(str):
    """Another value of the same setting: "crop" for data.fit."""


#: Environment variables of one word, which are printed with their names.
_VARIABLES = ("RANK", "TMPDIR")

#: What helps: commands, settings, values that work if they are pasted, and hints.
Fix = str | tuple[str, ...]


class Problem(NamedTuple):
    """One thing that is wrong with what the user wrote: data, of which `lines` makes the text."""

    key: str  # "methods.mixup.alpha", "--out", a path, or an argument of a usage line: "RUN"
    value: object  # what was written there; None if nothing was
    clause: str  # what is wrong: "must be positive"; of an unknown name its noun: "setting"
    fix: Fix = ()  # what to type instead
    valid: tuple[str, ...] = ()  # the allowed values, or known names
    kind: Kind = Kind.WRONG
    typed: str = ""  # the word of the command line: "lr=-1"
    where: str = ""  # file and line: "recipes/mine.yaml:7"

    @property
    def fixes(self) -> tuple[str, ...]:
        """What to type instead, without hints."""
        return tuple(each for each in self.advice if not isinstance(each, Hint))

    @property
    def advice(self) -> tuple[str, ...]:
        """What helps: what to type instead, and hints."""
        every = (self.fix,) if isinstance(self.fix, str) else tuple(self.fix)
        return tuple(each for each in every if each)

    def under(self, section: str) -> "Problem":
        """Return the same problem with its key placed inside `section`."""
        return self._replace(key=f"{section}.{self.key}")

    def about(self, name: str) -> str:
        """Return what is wrong as a clause about something else that has the problem."""
        return masked(f"{name} {self.clause}".strip())

    def lines(self) -> list[str]:
        """Return the text for people: what is wrong, then lines that begin with a label."""
        below = [self._labelled(each) for each in self.advice if each not in self._meant()]
        if self.kind is Kind.UNUSED and not below:
            below = ["hint:  remove it"]
        if self.valid:
            below.append(f"valid: {', '.join(self.valid)}")
        first = f"{self.where}: {self._first()}" if self.where else self._first()
        return [masked(line) for line in [first, *below]]

    def _first(self) -> str:
        """Return what is wrong, with secrets."""
        said = self.key if self.value is None else f"{self.key}={_text(self.value)}"
        if self._is_argument and self.value not in (None, ""):  # an argument of a usage line
            said = f"`{_text(self.value)}`"
        said = self.typed or said
        match self.kind:
            case Kind.UNKNOWN:
                return f"unknown {self.clause} {said}" + "".join(
                    f"; did you mean {each}?" for each in self._meant()
                )
            case Kind.MISSING | Kind.ABSENT:
                verb = "is missing" if self.kind is Kind.MISSING else "does not exist"
                return f"{said} {verb}" + (f": {self.clause}" if self.clause else "")
        return f"{said}: {self.clause or 'not a valid value'}"

    def _meant(self) -> tuple[str, ...]:
        """Return the name that was most likely meant instead of an unknown one, if there is one."""
        is_name = self.kind is Kind.UNKNOWN and len(self.fixes) == 1 and " " not in self.fixes[0]
        return self.fixes if is_name else ()

    def _labelled(self, help: str) -> str:
        if isinstance(help, Hint):
            return f"hint:  {help}"
        return f"try:   {self.command(help)}"

    @property
    def _is_argument(self) -> bool:
        """Whether the key is an argument of a usage line, such as RUN|FILE, not a variable."""
        return bool(re.fullmatch("[A-Z|]+", self.key)) and self.key not in _VARIABLES

    def command(self, fix: str) -> str:
        """Return what to type instead: of another value, the setting with it."""
        is_setting = self.value is not None and not self.where and not self._is_argument
        if self.where and isinstance(fix, Value):
            return f"{self.key.rpartition('.')[2]}: {fix}"
        if not (isinstance(fix, Value) and is_setting):
            return fix
        if self.key.startswith("-"):
            return f"{self.key} {shlex.quote(fix)}"
        name = self.typed.partition("=")[0] or names.short(self.key)
        return shlex.quote(f"{name}={fix}")

    def __str__(self) -> str:
        return "\n    ".join(self.lines())


def _text(value: object) -> str:
    """Return a value as it is typed; a long one is cut."""
    text = str(value).removesuffix(".0") if isinstance(value, float) else str(value)
    text = str(list(value)) if isinstance(value, tuple) else text
    text = masked(text.lower() if isinstance(value, bool) else text)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


class RecipeError(Exception):
    """Everything wrong with a command or a recipe, collected before anything has started."""

    exit_code = ExitCode.RECIPE

    def __init__(self, problems: Iterable[Problem]):
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def of(
        cls,
        key: str,
        value: object,
        clause: str,
        fix: Fix = (),
        kind: Kind = Kind.WRONG,
    ) -> Self:
        """Return the error of a single problem."""
        return cls([Problem(key, value, clause, fix, kind=kind)])

    @classmethod
    def refuse(cls, problems: Iterable[Problem | None]) -> None:
        """Raise this error of all problems, if there are any."""
        if collected := [problem for problem in problems if problem]:
            raise cls(collected)

    def elsewhere(self, here: object, there: str) -> Self:
        """Return this error of a copy, `here`, as one of its original."""

        def moved(part: Any) -> Any:
            if isinstance(part, tuple):
                return tuple(map(moved, part))
            is_text = isinstance(part, str) and not isinstance(part, Kind)
            return type(part)(part.replace(str(here), there)) if is_text else part

        return type(self)(Problem._make(map(moved, problem)) for problem in self.problems)


class NotReadyError(RecipeError):
    """The data or the machine must be fixed before this run can start."""

    exit_code = ExitCode.NOT_READY

    def of_place(self, key: str, value: object = None) -> Self:
        """Return this error of a file under the name that was typed: a key, and a value."""
        return type(self)(
            problem._replace(
                key=key,
                value=value,
                clause=problem.about("" if problem.key in (key, value) else problem.key),
            )
            for problem in self.problems
        )

    @classmethod
    def at(
        cls,
        place: object,
        clause: str,
        fix: Fix = (),
        kind: Kind = Kind.WRONG,
    ) -> Self:
        """Return the error of a file or folder."""
        return cls.of(str(place), None, clause, fix, kind)


class NotYetError(NotReadyError):
    """What a run waits for is not there yet: the same command, typed later, may work."""

    exit_code = ExitCode.PREEMPTED


class TrainingError(Exception):
    """Training had to stop, for a reason that the message explains in one or two sentences."""

    exit_code = ExitCode.FAILED
