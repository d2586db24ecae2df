"""Errors that a user can act on: a `Problem` holds data, and its methods form sentences.

Code decides by `key`, `kind`, `valid` and advice, and never parses a message. Advice is a `Hint` or
a correction (a `Command`, a `Value`, a `Change`, or arguments), which may be split into words.
"""

import re
import shlex
from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Self

from resnet_recipes.base import names
from resnet_recipes.base.text import Snippet

MAX_SHOWN_CHARACTERS = 500  # longest value that a message shows


#: In a URL: user name and password, which may contain slashes; query or fragment.
_SECRETS = (
    (re.compile(r"://(?:[^/?#'\"\n]+|[^/:\s]+:(?!\d+/)[^?#'\"\n]+)@"), "://***@"),
    (re.compile(r"(://[^?#'\"\s]*[?#])[^'\"\s]+"), r"\1***"),
)


def mask_secrets(text: str) -> str:
    """Return a text without the passwords and tokens of the URLs in it."""
    for secret, replacement in _SECRETS:
        text = secret.sub(replacement, text)
    return text


class ExitCode(IntEnum):
    """How a command ended, for the shell and for Slurm."""

    DONE = 0
    FAILED = 1  # training or another task failed, or Ctrl-C after an earlier signal stopped it
    RECIPE = 2  # wrong command or recipe
    NOT_READY = 3  # the data or the machine must be fixed first
    PREEMPTED = 75  # stopped from outside after saving, or not ready yet: run the command again
    CANCELLED = 130  # Ctrl-C stopped the command


#: Exit codes of stops, which are not failures: the command can be repeated.
STOPPED_CODES = (ExitCode.PREEMPTED, ExitCode.CANCELLED)

#: Exit codes of commands whose recipe, data or machine must be fixed first.
REJECTED_CODES = (ExitCode.RECIPE, ExitCode.NOT_READY)


class Kind(StrEnum):
    """The kind of mistake."""

    WRONG = "wrong"  # the value breaks a rule
    UNKNOWN = "unknown"  # no setting, command, option, flag, method or recipe has this name
    MISSING = "missing"  # it is required
    ABSENT = "absent"  # the file, folder or run does not exist
    UNUSED = "unused"  # it is not allowed or has no effect here: remove it


class Command(str):
    """A complete command to run: "resnet-train mild data=D"."""

    @classmethod
    def of(cls, *words: str) -> Self:
        """Return the command of words, which are quoted for a shell."""
        return cls(shlex.join(words))


class Statement(str):
    """A clause with its own subject: "torch sees no GPU on this machine"."""


class Hint(str):
    """A helpful fact that cannot be pasted: "mild uses lr=2.048"."""


class Value(str):
    """Another value for the same setting: "crop" for data.fit."""


class Change(str):
    """A change of a setting, as an argument without quotes: "data=my images", "~methods.ema"."""

    @property
    def key(self) -> str:
        """The name of the setting, as a user would type it."""
        return self.lstrip("~").partition("=")[0]

    @property
    def value(self) -> str:
        """The value; "" if the setting is removed."""
        return self.partition("=")[2]


#: Fixes: commands, settings and values that work if pasted, and hints.
Fix = str | tuple[str, ...]


def list_advice(fix: Fix) -> tuple[str, ...]:
    """Return the commands, values and hints of a fix."""
    return tuple(filter(None, (fix,) if isinstance(fix, str) else fix))


def get_label(advice: str) -> str:
    """Return the label of a line of advice: try (a command), use (arguments), or hint."""
    if isinstance(advice, Hint):
        return "hint"
    return "try" if isinstance(advice, Command) else "use"


def format_advice(advice: str) -> str:
    """Return a line of a message: a command to try, arguments to use, or a hint."""
    return _to_snippet(advice, f"{get_label(advice) + ':':<6} {advice}")


def _to_snippet(advice: str, text: str) -> str:
    return text if isinstance(advice, Hint) else Snippet(text)


class Problem(NamedTuple):
    """One problem with the user's input, as data; `lines` turns it into text."""

    key: str  # "methods.mixup.alpha", "--out", a path, or an argument of a usage line: "RUN"
    value: object  # the given value, or None
    clause: str  # the problem: "must be positive"; precedes an unknown name: "unknown setting"
    fix: Fix = ()  # advice: corrections and hints
    valid: tuple[str, ...] = ()  # the allowed values, or known names
    kind: Kind = Kind.WRONG
    typed: str = ""  # the command-line argument: "lr=-1"
    where: str = ""  # file and line: "recipes/mine.yaml:7"

    @classmethod
    def unknown_setting(
        cls, key: str, value: object = None, fix: Fix = (), typed: str = "", noun: str = "setting"
    ) -> "Problem":
        """Return the problem that no `noun` is called `key`."""
        return cls(key, value, f"unknown {noun}", fix, kind=Kind.UNKNOWN, typed=typed)

    @property
    def corrections(self) -> tuple[str, ...]:
        """Commands and values to use instead, without hints."""
        return tuple(fix for fix in self.advice if not isinstance(fix, Hint))

    @property
    def changes(self) -> tuple[Change, ...]:
        """The corrections that change a setting."""
        return tuple(fix for fix in self.corrections if isinstance(fix, Change))

    @property
    def advice(self) -> tuple[str, ...]:
        """The corrections and hints."""
        return list_advice(self.fix)

    def under(self, section: str) -> "Problem":
        """Return the same problem with its key placed inside `section`."""
        return self._replace(key=f"{section}.{self.key}")

    def replace_text(self, old: str, new: str) -> "Problem":
        """Return the same problem with `old` replaced in all texts, such as a path."""

        def replace(part: Any) -> Any:
            if isinstance(part, tuple):
                return tuple(map(replace, part))
            is_text = isinstance(part, str) and not isinstance(part, Kind)
            return type(part)(part.replace(old, new)) if is_text else part

        return Problem._make(map(replace, self))

    def replace_advice(self, old: str, *new: str) -> "Problem":
        """Return the same problem with `new` in place of the advice `old`, if it has that."""
        others = tuple(advice for advice in self.advice if advice != old)
        return self if others == self.advice else self._replace(fix=(*others, *new))

    def about(self, name: str) -> str:
        """Return the problem as a clause about `name`."""
        clause = self.clause or ("does not exist" if self.kind is Kind.ABSENT else "")
        text = f"{name}{self._separator} {clause}".strip()
        return mask_secrets(f"{clause} {self.typed or name}" if self.kind is Kind.UNKNOWN else text)

    def lines(self) -> list[str]:
        """Return the text to show: the problem, then lines that start with a label."""
        likely = self._find_likely_names()
        below = [format_advice(self.format_fix(fix)) for fix in self.advice if fix not in likely]
        if self.kind is Kind.UNUSED and not below:
            below = ["hint:  remove it"]
        if self.valid:
            below.append(f"valid: {', '.join(self.valid)}")
        first = self._format_first_line()
        first = f"{self.where}: {first}" if self.where else first
        return [type(line)(mask_secrets(line)) for line in [first, *below]]

    def _format_first_line(self) -> str:
        """Return the first line, with secrets not yet masked."""
        subject = self.key if self.value is None else f"{self.key}={to_text(self.value)}"
        if self._is_argument and self.value not in (None, ""):  # an argument of a usage line
            subject = f"`{to_text(self.value)}`"
        subject = self.typed or subject
        likely = "".join(
            f"; did you mean {name}?" for name in map(self._format_name, self._find_likely_names())
        )
        match self.kind:
            case Kind.UNKNOWN:
                return f"{self.clause} {subject}{likely}"
            case Kind.MISSING | Kind.ABSENT:
                verb = "is missing" if self.kind is Kind.MISSING else "does not exist"
                return f"{subject} {verb}" + (f": {self.clause}" if self.clause else likely)
        return f"{subject}{self._separator} {self.clause or 'is not valid'}"

    def _find_likely_names(self) -> tuple[str, ...]:
        """Return the name that an unknown or absent name most likely stands for, if any."""
        if self.kind is Kind.ABSENT and not self.clause:
            return tuple(fix for fix in self.corrections[:1] if isinstance(fix, Value))
        if self.kind is not Kind.UNKNOWN or len(self.corrections) != 1:
            return ()
        return () if isinstance(self.corrections[0], Command) else self.corrections

    @property
    def _separator(self) -> str:
        return ":" if isinstance(self.clause, Statement) else ""

    @property
    def _is_argument(self) -> bool:
        """Whether the key is an argument in a usage line, such as RUN|FILE."""
        return bool(re.fullmatch("[A-Z|]+", self.key))

    def _format_name(self, fix: str) -> str:
        """Return a likely name; an unknown value stays without its setting."""
        is_value = self.kind is Kind.UNKNOWN and isinstance(fix, Value)
        return fix if is_value else self.format_fix(fix)

    def format_fix(self, fix: str) -> str:
        """Return the fix to run; a value is prefixed with its setting, a change quoted."""
        if isinstance(fix, Change):
            return quote(fix)
        is_setting = self.value is not None and not self.where and not self._is_argument
        if self.where and isinstance(fix, Value):
            return f"{self.key.rpartition('.')[2]}: {fix}"
        if not (isinstance(fix, Value) and is_setting):
            return fix
        if self.key.startswith("-"):
            return f"{self.key} {shlex.quote(fix)}"
        name = self.typed.partition("=")[0] or names.find_short_name(self.key)
        return shlex.quote(f"{name}={fix}")

    def __str__(self) -> str:
        return "\n    ".join(self.lines())


def quote(argument: str) -> str:
    """Return an argument as typed in a shell."""
    return f"{argument}''" if argument.endswith("=") else shlex.quote(argument)


def to_text(value: object) -> str:
    """Return a value as written on the command line, without secrets; long values are cut."""
    text = str(value).removesuffix(".0") if isinstance(value, float) else str(value)
    text = str(list(value)).replace("'", "") if isinstance(value, list | tuple) else text
    text = mask_secrets(text.lower() if isinstance(value, bool) else text)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."


class RecipeError(Exception):
    """Problems that prevent a command from starting.

    They are in the command or its recipe; a NotReadyError has problems of the data or the machine.
    """

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
        """Return an error with a single problem."""
        return cls([Problem(key, value, clause, fix, kind=kind)])

    @classmethod
    def raise_if_any(cls, problems: Iterable[Problem | None]) -> None:
        """Raise this error with all problems, if there are any."""
        if collected := [problem for problem in problems if problem]:
            raise cls(collected)

    def with_path_replaced(self, here: object, there: str) -> Self:
        """Return this error with the path `here` replaced by `there` in all texts."""
        return type(self)(problem.replace_text(str(here), there) for problem in self.problems)


class NotReadyError(RecipeError):
    """The data or the machine must be fixed before this run can start."""

    exit_code = ExitCode.NOT_READY

    def with_key(self, key: str, value: object = None) -> Self:
        """Return this error with another key; the old key becomes the subject of the clause."""
        return type(self)(
            problem._replace(
                key=key,
                value=value,
                clause=problem.clause
                if problem.key in (key, value)
                else Statement(problem.about(problem.key)),
            )
            for problem in self.problems
        )

    @classmethod
    def at(
        cls,
        path: object,
        clause: str,
        fix: Fix = (),
        kind: Kind = Kind.WRONG,
    ) -> Self:
        """Return an error about a path or an address."""
        return cls.of(str(path), None, clause, fix, kind)


class RetryLaterError(NotReadyError):
    """A prerequisite of the run is not there yet: the same command may work later."""

    exit_code = ExitCode.PREEMPTED


#: A row of a plan or a summary: a label, or "" if it continues the row above, and a text.
LabeledText = tuple[str, str]


class Note(NamedTuple):
    """A fact that a user may want to act on; it never prevents a run."""

    text: str  # a clause without a period
    fix: Fix = ()  # as in a Problem

    def list_rows(self, label: str = "note") -> list[LabeledText]:
        """Return the rows to show: the note, and each line of advice; "or" before alternatives."""
        advice = list_advice(self.fix)
        labels = [get_label(line) for line in advice]
        return [
            (label, self.text),
            *(
                ("or" if "use" == kind in labels[:index] else kind, _to_snippet(text, text))
                for index, (kind, text) in enumerate(zip(labels, advice, strict=True))
            ),
        ]


class BrokenRuleError(ValueError):
    """A value breaks a rule; `clause` and `fix` are those of a Problem."""

    def __init__(self, clause: str, fix: Fix = ()):
        super().__init__(clause)
        self.clause, self.fix = clause, fix


class TrainingError(Exception):
    """Training or another task had to stop: a statement, and a fix as in a Problem."""

    exit_code = ExitCode.FAILED

    def __init__(self, statement: str, fix: Fix = ()):
        super().__init__(statement, fix)  # unpickling passes these arguments
        self.statement, self.fix = statement, fix

    def lines(self) -> list[str]:
        """Return the text to show: the statement, then lines that start with a label."""
        return [*self.statement.splitlines(), *map(format_advice, list_advice(self.fix))]

    def __str__(self) -> str:
        return "\n    ".join(self.lines())


class BadTrainingImageError(TrainingError):
    """A training image is damaged; a resumed run can skip it."""


class BadValidationImageError(TrainingError):
    """A validation image is damaged; a resumed run would fail again."""

    exit_code = ExitCode.NOT_READY
