"""Sections of a recipe: dataclasses whose fields keep their types, with limits in annotations."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from inspect import get_annotations
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, get_args

from resnet_recipes.base.duration import Duration, is_duration
from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.base.kinds import WrongTypeError, converted, kinds_of


class Limit(Protocol):
    """What a value must be; None is always right, and of a list every item is judged by itself."""

    fix: str  # what to type instead

    def broken(self, value: Any) -> str:
        """Return the rule that a value breaks, or ""."""


@dataclass(frozen=True)
class Bounds:
    """A number between limits, or one word."""

    least: float = -inf
    most: float = inf
    above: float = -inf
    below: float = inf
    word: str = ""  # that may stand in place of a number
    said: str = ""  # the limits in words of their own
    fix: str = ""

    def broken(self, value: Any) -> str:
        is_number = isinstance(value, int | float)
        if (self.word and value == self.word) or (
            is_number and self.least <= value <= self.most and self.above < value < self.below
        ):
            return ""
        return f"must be {f'{self.word} or ' if self.word else ''}{self.said or self._text()}"

    def _text(self) -> str:
        if self.least > -inf and self.most < inf:
            return f"between {self.least} and {self.most}"
        if self == Bounds(above=0, fix=self.fix):
            return "positive"
        named = {"at least": self.least, "above": self.above, "at most": self.most}
        named["below"] = self.below
        return " and ".join(f"{name} {end}" for name, end in named.items() if abs(end) < inf)


class OneOf:
    """One of some values."""

    fix = ""

    def __init__(self, *known: object):
        self.known = known

    def broken(self, value: Any) -> str:
        if value in self.known:
            return ""
        names = list(map(str, self.known))
        return "must be " + (" or ".join(names) if len(names) < 3 else f"one of {', '.join(names)}")


@dataclass(frozen=True)
class IsDuration:
    """A duration, longer than nothing unless it may be zero."""

    units: tuple[str, ...] = ("ep", "ba", "dur")
    may_be_zero: bool = False
    fix: ClassVar[str] = ""

    def broken(self, value: Any) -> str:
        try:
            duration = Duration.parse(str(value))
        except ValueError as error:
            return str(error)
        if duration.unit not in self.units:
            return f"must be given in {' or '.join(self.units)}"
        return "" if duration.value or self.may_be_zero else "must be positive"


@dataclass(frozen=True)
class Span:
    """Two numbers above 0, the lower one first."""

    most: float = inf
    fix: ClassVar[str] = ""

    def broken(self, value: Any) -> str:
        low, high = value
        if 0 < low <= high <= self.most:
            return ""
        end = f" <= {self.most}" if self.most < inf else ""
        return f"must be [low, high] with 0 < low <= high{end}"


#: The limits of most numbers: of a probability, of a share that leaves something, of a strength.
Share = Annotated[float, Bounds(least=0, most=1)]
Part = Annotated[float, Bounds(least=0, below=1)]
Positive = Annotated[float, Bounds(above=0)]

#: A duration of some steps, and one that may be zero.
Length = Annotated[str, IsDuration()]
LengthOrZero = Annotated[str, IsDuration(may_be_zero=True)]


@cache
def limits_of(cls: type) -> dict[str, tuple[Limit, ...]]:
    """Return the limits of each field that has some; a subclass inherits those of its bases."""
    found = {}
    for owner in reversed(cls.__mro__):
        for name, kind in get_annotations(owner).items():
            if limits := tuple(dict.fromkeys(_limits_in(kind))):
                found[name] = limits
    return found


def _limits_in(kind: Any) -> Iterator[Limit]:
    yield from getattr(kind, "__metadata__", ())
    for part in get_args(kind):
        yield from _limits_in(part)


def broken_limits(settings: object) -> Iterator[Problem]:
    """Yield what is wrong with each value of a dataclass by itself."""
    cls: type = type(settings)
    for name, limits in limits_of(cls).items():
        value = getattr(settings, name)
        for limit in limits:
            is_list = isinstance(value, list | tuple) and not isinstance(limit, Span)
            for item in value if is_list else [value]:
                if item is not None and (rule := limit.broken(item)):
                    yield Problem(name, item, rule, limit.fix)


class Section:
    """Settings of a recipe: a dataclass that refuses unknown names and values of other types.

    Names that begin with an underscore are an object's own state, and may hold anything.
    """

    _place: ClassVar[str] = ""  # of its settings in a recipe: "data."

    if not TYPE_CHECKING:  # a type checker that saw this would accept every name

        def __setattr__(self, name: str, value: object) -> None:
            """Set a setting. Raises RecipeError."""
            if not name.startswith("_"):
                value = fitted(type(self), name, value, self._place)
            super().__setattr__(name, value)

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the values; keys are relative to the section ("alpha")."""
        return broken_limits(self)


def fitted(cls: type, name: str, value: object, place: str) -> Any:
    """Return a value for a field of a dataclass, converted to its type. Raises RecipeError."""
    kinds, key = kinds_of(cls), f"{place}{name}"
    if name not in kinds:
        meant = get_close_matches(name, kinds, n=1)
        fix = f"did you mean {place}{meant[0]}?" if meant else f"settings: {', '.join(kinds)}"
        raise RecipeError.of(key, value, "no such setting", fix)
    try:
        return converted(value, kinds[name])
    except WrongTypeError as error:
        fix = _fix(cls, name, value, key)
        raise RecipeError.of(key, value, f"must be {error}", fix) from None


def _fix(cls: type, name: str, value: object, key: str) -> str:
    """Return what to write instead of a value of another type, or ""."""
    default = next(item.default for item in fields(cls) if item.name == name)
    if isinstance(default, str) and isinstance(value, int | float) and is_duration(default):
        return f"a length needs a unit: {key}={value}ep or {key}={value}ba"
    if (
        isinstance(value, str)
        and kinds_of(cls)[name] in (int, float)
        and value.replace(".", "", 1).isdigit()
    ):
        return f"write {value} without quotes"
    if kinds_of(cls)[name] is int and (span := re.fullmatch(r"(\d{1,9})-(\d{1,9})", str(value))):
        return (
            f"one number, or a sweep: resnet-train -m '{key}=range({span[1]},{int(span[2]) + 1})'"
        )
    if isinstance(value, list):
        if kinds_of(cls)[name] == list[str]:
            return f"lengths need a unit: '{key}=[{','.join(f'{item}ep' for item in value)}]'"
        return f"-m {key}={','.join(map(str, value))}"
    return ""
