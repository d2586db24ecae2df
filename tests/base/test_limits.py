"""Limits that stand in the annotations of fields."""

from dataclasses import dataclass, field
from typing import Annotated

import pytest

from resnet_recipes.base.errors import Problem
from resnet_recipes.base.limits import (
    Bounds,
    IsDuration,
    Length,
    LengthOrZero,
    OneOf,
    Part,
    Positive,
    Share,
    Span,
    broken_limits,
)


@dataclass
class Base:
    rate: Annotated[float, Bounds(above=0, below=10, fix="rate=1")] = 1.0
    pair: tuple[Part, Part] = (0.0, 0.5)


@dataclass
class Derived(Base):
    rate: float = 2.0
    clip: Positive | None = None
    sizes: list[Annotated[int, Bounds(least=8, most=32)]] = field(default_factory=list)


def test_every_item_is_judged_and_a_subclass_keeps_the_limits_of_its_base():
    assert not [*broken_limits(Derived())]
    assert [*broken_limits(Derived(-1.0, (0.5, 1.0), 0.0, [8, 4, 33]))] == [
        Problem("rate", -1.0, "must be above 0 and below 10", "rate=1"),
        Problem("pair", 1.0, "must be at least 0 and below 1"),
        Problem("clip", 0.0, "must be positive"),
        Problem("sizes", 4, "must be between 8 and 32"),
        Problem("sizes", 33, "must be between 8 and 32"),
    ]


@pytest.mark.parametrize(
    ("limit", "right", "wrong", "rule"),
    [
        (Bounds(least=1), [1, 9], [0], "at least 1"),
        (Bounds(above=0), [0.1], [0.0, -1.0], "positive"),
        (Bounds(above=0, most=1), [1.0], [0, 1.1], "above 0 and at most 1"),
        (
            Bounds(least=0, most=64, word="auto"),
            ["auto", 0],
            [65, "all"],
            "auto or between 0 and 6",
        ),
        (Bounds(least=0, said="a price"), [0], [-1], "a price"),
        (OneOf("a", "b"), ["b"], ["c"], "a or b"),
        (OneOf(1, 2, 3), [3], [4], "one of 1, 2, 3"),
        (IsDuration(("ep",)), ["8ep"], ["8ba"], "given in ep"),
        (Length.__metadata__[0], ["0.5dur"], ["0ep"], "positive"),
        (LengthOrZero.__metadata__[0], ["0ep"], [], ""),
        (Share.__metadata__[0], [0, 1], [1.1], "between 0 and 1"),
        (
            Span(most=1),
            [(0.1, 1.0)],
            [(0.0, 1.0), (0.6, 0.5), (0.5, 2)],
            "[low, high] with 0 < low",
        ),
    ],
    ids=lambda value: type(value).__name__,  # no address, which differs between processes
)
def test_a_limit_says_its_rule_of_what_breaks_it_and_of_nothing_else(limit, right, wrong, rule):
    assert not [value for value in right if limit.broken(value)]
    assert all(limit.broken(value).startswith(f"must be {rule}") for value in wrong)
