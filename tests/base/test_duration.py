"""Durations, their steps, and budgets are parsed exactly."""

from fractions import Fraction

import pytest

from resnet_recipes.base.duration import (
    Duration,
    Horizon,
    Recurrence,
    parse_budget,
    parse_fraction,
    parse_time,
)
from resnet_recipes.base.errors import BrokenRuleError
from tests.shared.tables import parse_rows


@pytest.mark.parametrize(
    ("text", "value", "unit", "written"),
    parse_rows(
        """
8ep | 8 | ep | 8ep
0.4dur | 2/5 | dur | 0.4dur
 2 ep  | 2 | ep | 2ep
1e2ba | 100 | ba | 100ba
0ep | 0 | ep | 0ep
1dur | 1 | dur | 1dur
10000ep | 10000 | ep | 10000ep
1000000000ba | 1000000000 | ba | 1000000000ba
"""
    ),
)
def test_duration_is_a_number_and_a_unit(text, value, unit, written):
    assert Duration.parse(text) == Duration(Fraction(value), unit)
    assert str(Duration.parse(text)) == written


@pytest.mark.parametrize(
    "text",
    [
        "8",
        "8 epochs",
        "ep",
        "-1ep",
        "1.1dur",
        "",
        "8ep 3ba",
        "9" * 400 + "ep",
        "1e20ba",
        "nanep",
        "infep",
        "0x8ep",
        "1000000001ep",
        None,
        8,
    ],
)
def test_invalid_duration_is_rejected_with_a_sentence(text):
    with pytest.raises(
        BrokenRuleError, match=r"must be a number and a unit|between 0dur|is too long"
    ):
        Duration.parse(text)


@pytest.mark.parametrize(
    ("ratio", "epochs"),
    parse_rows(
        """
0.1 | 9
0.18 | 16
0.2 | 18
0.25 | 22
0.3 | 27
0.32 | 28
0.35 | 31
0.4 | 36
0.5 | 45
0.6 | 54
0.7 | 63
0.75 | 67
1 | 90
1.15 | 103
1.4 | 126
1.5 | 135
2 | 180
2.3 | 207
2.6 | 234
2.8 | 252
3 | 270
4.1 | 369
5 | 450
9 | 810
"""
    ),
)
def test_scaled_duration_rounds_down_without_float_errors(ratio, epochs):
    for factor in (ratio, float(ratio)):
        scaled = Duration.parse("90ep").scale(parse_fraction(factor))
        assert scaled == Duration(Fraction(int(epochs)), "ep")


def test_duration_as_run_fraction_is_not_scaled():
    assert Duration.parse("0.5dur").scale(Fraction(2)) == Duration.parse("0.5dur")


@pytest.mark.parametrize(
    ("total", "per_epoch", "text", "steps"),
    parse_rows(
        """
22500 | 625 | 8ep | 5000
22500 | 625 | 100ba | 100
22500 | 625 | 1dur | 22500
22500 | 625 | 0.5ep | 312
100 | 10 | 0.29dur | 29
103 | 7 | 1.99ep | 13
103 | 7 | 0.25dur | 25
103 | 7 | 0.01ep | 1
103 | 7 | 0ep | 0
"""
    ),
)
def test_duration_is_rounded_down_to_steps(total, per_epoch, text, steps):
    horizon = Horizon(int(total), int(per_epoch))
    assert horizon.steps(Duration.parse(text)) == int(steps)
    assert horizon.epochs == Fraction(int(total), int(per_epoch))


def test_budget_is_a_time_or_an_amount():
    assert [parse_time(text) for text in ("2h", "90m", "1.5s")] == [7200.0, 5400.0, 1.5]
    assert parse_budget("90m", None) == 5400.0
    assert parse_budget("$20", 32.0) == parse_budget("20$", 32.0) == 2250.0
    for text, price in (("$20", None), ("$20", 0.0), ("20", 1.0), ("2 h", 1.0), ("h", 1.0)):
        with pytest.raises(BrokenRuleError, match=r"must be a time|needs a price"):
            parse_budget(text, price)


@pytest.mark.parametrize("interval", [1, 3, 4, 15, 70])
@pytest.mark.parametrize("offset", [0, 1, 3, 20, 55])
def test_recurrence_counts_intervals_from_offset(interval, offset):
    recurrence = Recurrence(interval, 40, offset)
    for done in range(41):
        steps = [step for step in range(done + 1, 40) if (step - offset) % interval == 0]
        steps += [40] if done < 40 else []
        assert [step for step in range(done + 1, 41) if recurrence.is_due(step)] == steps
        assert recurrence.count(done) == len(steps)
