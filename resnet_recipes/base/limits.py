"""Limits of settings beyond their types, as annotations of dataclass fields."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import get_annotations
from math import inf
from typing import Annotated, Any, get_args

from resnet_recipes.base.duration import Duration
from resnet_recipes.base.errors import BrokenRuleError, Fix, Problem, Statement


class Limit:
    """A rule for values; None is not checked.

    Each item of a list is checked separately, except by Span, which checks the complete list.
    """

    fix: Fix = ()  # advice if the rule is broken
    valid: tuple[str, ...] = ()  # the allowed values, if they can be listed

    def find_broken_rule(self, value: Any) -> str:
        """Return the rule that a value breaks, or ""."""
        raise NotImplementedError


@dataclass(frozen=True)
class Bounds(Limit):
    """A number between limits, or a keyword."""

    least: float = -inf
    most: float = inf
    above: float = -inf
    below: float = inf
    keyword: str = ""  # allowed in place of a number
    text: str = ""  # text of the rule, instead of the limits
    fix: Fix = ()

    def find_broken_rule(self, value: Any) -> str:
        is_number = isinstance(value, int | float)
        if (self.keyword and value == self.keyword) or (
            is_number and self.least <= value <= self.most and self.above < value < self.below
        ):
            return ""
        keyword = f"{self.keyword} or " if self.keyword else ""
        return f"must be {keyword}{self.text or self._format_rule()}"

    def _format_rule(self) -> str:
        if self.least > -inf and self.most < inf:
            return f"between {self.least:,} and {self.most:,}"
        if self == Bounds(above=0, fix=self.fix):
            return "positive"
        limits_by_name = {"at least": self.least, "above": self.above, "at most": self.most}
        limits_by_name["below"] = self.below
        return " and ".join(
            f"{name} {end:,}" for name, end in limits_by_name.items() if abs(end) < inf
        )


class OneOf(Limit):
    """One of a set of values."""

    def __init__(self, *values: object):
        self.values = values
        self.valid = tuple(map(str, values))

    def find_broken_rule(self, value: Any) -> str:
        return "" if value in self.values else "is not valid"


@dataclass(frozen=True)
class IsDuration(Limit):
    """A positive duration, or zero if allowed."""

    units: tuple[str, ...] = ("ep", "ba", "dur")
    may_be_zero: bool = False

    def find_broken_rule(self, value: Any) -> str:
        try:
            duration = Duration.parse(str(value))
        except BrokenRuleError as error:
            return error.clause
        if duration.unit not in self.units:
            return f"must be given in {' or '.join(self.units)}"
        return "" if duration.value or self.may_be_zero else "must be positive"


@dataclass(frozen=True)
class Span(Limit):
    """Two numbers above 0, the lower one first."""

    most: float = inf

    def find_broken_rule(self, value: Any) -> str:
        low, high = value
        if 0 < low <= high <= self.most:
            return ""
        end = f" <= {self.most}" if self.most < inf else ""
        return f"must be [low, high] with 0 < low <= high{end}"


ZeroToOne = Annotated[float, Bounds(least=0, most=1)]
BelowOne = Annotated[float, Bounds(least=0, below=1)]
Positive = Annotated[float, Bounds(above=0)]

PositiveDuration = Annotated[str, IsDuration()]
DurationOrZero = Annotated[str, IsDuration(may_be_zero=True)]


def find_number_problem(
    key: str, text: str, least: int, most: int = 9999, fix: Fix = ()
) -> Problem | None:
    """Return a problem if a text is not an integer from `least` to `most`."""
    if re.fullmatch("[0-9]{1,9}", text) and least <= int(text) <= most:
        return None
    return Problem(key, text, f"must be a whole number from {least:,} to {most:,}", fix)


@cache
def get_limits(cls: type) -> dict[str, tuple[Limit, ...]]:
    """Return the limits of each field that has any, including inherited fields."""
    fields = {}
    for owner in reversed(cls.__mro__):
        for name, field_type in get_annotations(owner).items():
            if limits := tuple(dict.fromkeys(_find_limits(field_type))):
                fields[name] = limits
    return fields


def _find_limits(field_type: Any) -> Iterator[Limit]:
    yield from getattr(field_type, "__metadata__", ())
    for part in get_args(field_type):
        yield from _find_limits(part)


def find_limit_problems(settings: object) -> Iterator[Problem]:
    """Yield a problem for each value of a dataclass that breaks a limit."""
    cls: type = type(settings)
    for name, limits in get_limits(cls).items():
        value = getattr(settings, name)
        for limit in limits:
            is_list = isinstance(value, list | tuple) and not isinstance(limit, Span)
            for item in value if is_list else [value]:
                if item is not None and (rule := limit.find_broken_rule(item)):
                    clause = Statement(f"{item} {rule}") if is_list else rule
                    yield Problem(name, item, clause, limit.fix, limit.valid)
