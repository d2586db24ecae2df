"""Limits in field annotations."""

from dataclasses import dataclass, field
from typing import Annotated

import pytest
import yaml

from resnet_recipes.base.errors import Problem
from resnet_recipes.base.limits import (
    BelowOne,
    Bounds,
    DurationOrZero,
    IsDuration,
    OneOf,
    Positive,
    PositiveDuration,
    Span,
    ZeroToOne,
    find_limit_problems,
)
from tests.shared.tables import parse_rows


@dataclass
class Base:
    rate: Annotated[float, Bounds(above=0, below=10, fix="rate=1")] = 1.0
    pair: tuple[BelowOne, BelowOne] = (0.0, 0.5)


@dataclass
class Derived(Base):
    rate: float = 2.0
    clip: Positive | None = None
    sizes: list[Annotated[int, Bounds(least=8, most=32)]] = field(default_factory=list)


def test_limits_apply_to_items_and_in_subclasses():
    assert not [*find_limit_problems(Derived())]
    assert [*find_limit_problems(Derived(-1.0, (0.5, 1.0), 0.0, [8, 4, 33]))] == [
        Problem("rate", -1.0, "must be above 0 and below 10", "rate=1"),
        Problem("pair", 1.0, "1.0 must be at least 0 and below 1"),
        Problem("clip", 0.0, "must be positive"),
        Problem("sizes", 4, "4 must be between 8 and 32"),
        Problem("sizes", 33, "33 must be between 8 and 32"),
    ]


LIMITS = {
    "least": Bounds(least=1),
    "above": Bounds(above=0),
    "large": Bounds(least=1, most=2**20),
    "share": Bounds(above=0, most=1),
    "word": Bounds(least=0, most=64, keyword="auto"),
    "text": Bounds(least=0, text="a price"),
    "epochs": IsDuration(("ep",)),
    "PositiveDuration": PositiveDuration.__metadata__[0],
    "DurationOrZero": DurationOrZero.__metadata__[0],
    "ZeroToOne": ZeroToOne.__metadata__[0],
    "Span": Span(most=1),
}


@pytest.mark.parametrize(
    ("limit", "right", "wrong", "rule"),
    parse_rows(
        """
least | 1, 9 | 0 | must be at least 1
above | 0.1 | 0.0, -1.0 | must be positive
large | 1048576 | 0 | must be between 1 and 1,048,576
share | 1.0 | 0, 1.1 | must be above 0 and at most 1
word | auto, 0 | 65, all | must be auto or between 0 and 6
text | 0 | -1 | must be a price
epochs | 8ep | 8ba | must be given in ep
PositiveDuration | 0.5dur | 0ep | must be positive
DurationOrZero | 0ep | soon | must be a number and a unit
ZeroToOne | 0, 1 | 1.1 | must be between 0 and 1
Span | [0.1, 1.0] | [0.0, 1.0], [0.6, 0.5], [0.5, 2] | must be [low, high] with 0 < low
"""
    ),
)
def test_limit_states_its_rule_only_if_broken(limit, right, wrong, rule):
    find_rule = LIMITS[limit].find_broken_rule
    assert not [value for value in yaml.safe_load(f"[{right}]") if find_rule(value)]
    for value in yaml.safe_load(f"[{wrong}]"):
        assert find_rule(value).startswith(rule)


def test_one_of_lists_valid_values_of_wrong_value():
    @dataclass
    class Section:
        fit: Annotated[str, OneOf("crop", "pad")] = "crop"
        channels: Annotated[int, OneOf(1, 3)] = 3

    problems = [*find_limit_problems(Section("stretch", 2))]
    assert [(one.value, one.valid) for one in problems] == [
        ("stretch", ("crop", "pad")),
        (2, ("1", "3")),
    ]
