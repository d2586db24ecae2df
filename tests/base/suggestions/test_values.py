"""Invalid values of settings, and the suggested values."""

from dataclasses import dataclass, field
from typing import Annotated

import pytest

from resnet_recipes.base.errors import Kind, Problem, Value
from resnet_recipes.base.limits import Bounds, IsDuration, OneOf
from resnet_recipes.base.suggestions import UNITS
from resnet_recipes.base.suggestions.values import add_likely_value, read_epochs, read_time
from resnet_recipes.recipe.sections import PrecisionConfig
from tests.shared.tables import parse_rows


@dataclass
class Section:
    """Settings of every type that has suggestions."""

    size: Annotated[int, Bounds(least=8)] = 8
    rate: float = 0.1
    part: Annotated[float, Bounds(least=0, most=1)] = 0.0
    percent: Annotated[float | None, Bounds(least=1, most=100)] = None
    switch: bool = False
    warmup: Annotated[str, IsDuration()] = "5ep"
    every: Annotated[str, IsDuration()] = "20ba"
    steps: list[Annotated[str, IsDuration()]] = field(default_factory=list)
    pair: tuple[float, float] = (0.0, 1.0)
    to: list[Annotated[str, OneOf("csv", "wandb")]] = field(default_factory=list)
    fit: Annotated[str, OneOf("crop", "pad")] = "crop"


@pytest.mark.parametrize(
    ("name", "typed", "meant"),
    parse_rows(
        """
size | 48px | 48
size | (48, 48) | 48
size | 48x48 | 48
size | 48x32 |
size | 4000.0 | 4000
size | 2px |
size | 8.5 |
rate | 10% | 0.1
rate | 20 usd | 20
rate | high |
part | 10% | 0.1
part | 10 | 0.1
part | 1.5 |
part | 101 |
percent | 90% | 90
percent | 0.9 | 90
switch | on | true
switch | No | false
switch | maybe |
warmup | 5 | 5ep
warmup | 500 | 500ba
warmup | 5 epochs | 5ep
warmup | 5% | 0.05dur
warmup | 5h |
warmup | 5$ |
every | 50 | 50ba
every | 50 steps | 50ba
steps | [30,60] | [30ep,60ep]
steps | 30ep | [30ep]
pair | 0.1,1 | [0.1,1]
pair | 0.5 |
to | wandbb | [wandb]
to | csv,wandb | [csv,wandb]
to | csv,nope |
fit | corp | crop
fit | stretch |
"""
    ),
)
def test_wrong_value_suggests_the_intended_one(name, typed, meant):
    fixes = add_likely_value(Problem(name, typed, "wrong"), Section, name, typed).corrections
    assert fixes == ((Value(meant),) if meant else ())


@pytest.mark.parametrize(
    ("text", "time"),
    parse_rows(
        """
1h30m | 90m
1h 30 min | 90m
1:30:00 | 90m
0:10:30 | 11m
2 hours | 2h
2d | 48h
45 s | 45s
1:90 |
1h90m |
20usd |
soon |
"""
    ),
)
def test_read_time_parses_common_forms(text, time):
    assert read_time(text) == time


@pytest.mark.parametrize(
    ("text", "length"),
    [("3epochs", "3ep"), ("1h", "budget=1h"), ("20usd", "budget=$20"), ("x", "")],
)
def test_read_epochs_returns_epochs_or_a_budget(text, length):
    assert read_epochs(text) == length


def test_foreign_value_suggests_ours():
    (problem,) = PrecisionConfig(dtype="float16").problems()
    assert "precision.dtype=fp16" in problem.corrections


def test_unrecognized_value_keeps_its_fix():
    problem = Problem("part", 1000, "wrong", "part=0.5")
    for number in (1000, 2):  # 2 is hardly a percentage
        assert add_likely_value(problem, Section, "part", number) == problem
    assert add_likely_value(problem, Section, "part", 5).corrections == (Value("0.05"),)
    assert add_likely_value(problem, Section, "part", 50).corrections == (Value("0.5"),)
    assert problem.kind is Kind.WRONG


#: By unit: the suggested value and the suggested duration for three units.
SUGGESTIONS_FOR_THREE = {
    "": ("3", "3ep"),
    "%": ("0.03", ""),
    "ep": ("", "3ep"),
    "ba": ("", "3ba"),
    "d": ("", "budget=72h"),
    "w": ("", "budget=504h"),
    "h": ("", "budget=3h"),
    "m": ("", "budget=3m"),
    "s": ("", "budget=3s"),
}


@pytest.mark.parametrize("unit", UNITS)
def test_add_likely_value_parses_every_unit(unit):
    value, length = SUGGESTIONS_FOR_THREE["" if unit == "number" else UNITS[unit].text]
    typed = "3" if unit == "number" else f"3 {unit}"
    fixes = add_likely_value(Problem("rate", typed, "wrong"), Section, "rate", typed).corrections
    assert fixes == ((Value(value),) if value and unit != "number" else ())
    is_money = unit in ("$", "usd", "eur")
    assert read_epochs(typed) == ("budget=$3" if is_money else length)
