from fractions import Fraction

import pytest

from resnet_recipes.base.duration import Duration, Horizon, budget_seconds, clock_seconds, decimal
from tests.tables import rows


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("8ep", Fraction(8), "ep"),
        ("100ba", Fraction(100), "ba"),
        ("0.4dur", Fraction(2, 5), "dur"),
        (" 2 ep ", Fraction(2), "ep"),
        ("1e3ba", Fraction(1000), "ba"),
        ("0ep", Fraction(0), "ep"),
        ("1dur", Fraction(1), "dur"),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text, value, unit):
    assert Duration.parse(text) == Duration(value, unit)


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
        None,
        8,
    ],
)
def test_text_that_is_not_a_duration_is_refused_in_a_sentence(text):
    with pytest.raises(ValueError, match=r"is not a duration: write|longer than|is too long"):
        Duration.parse(text)


@pytest.mark.parametrize(
    ("ratio", "epochs"),
    rows(
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
def test_scaling_rounds_down_to_whole_epochs_without_float_errors(ratio, epochs):
    assert Duration.parse("90ep").scaled(decimal(ratio)) == Duration(Fraction(int(epochs)), "ep")
    assert Duration.parse("90ep").scaled(decimal(float(ratio))) == Duration(
        Fraction(int(epochs)), "ep"
    )


def test_a_share_of_the_run_is_not_scaled_again():
    assert Duration.parse("0.5dur").scaled(Fraction(2)) == Duration.parse("0.5dur")


def test_durations_become_steps_by_the_horizon():
    horizon = Horizon(total_steps=22500, steps_per_epoch=625)
    assert [
        horizon.steps(Duration.parse(text)) for text in ("8ep", "100ba", "0.4dur", "1dur", "0.5ep")
    ] == [5000, 100, 9000, 22500, 312]
    assert horizon.epochs == 36


def test_a_duration_is_never_nothing_unless_nothing_was_written():
    horizon = Horizon(total_steps=10, steps_per_epoch=5)
    assert horizon.steps(Duration.parse("0.001dur")) == 1
    assert horizon.steps(Duration.parse("0ep")) == 0


def test_shares_are_exact():
    assert Horizon(100, 10).steps(Duration.parse("0.29dur")) == 29  # int(0.29 * 100) is 28


def test_durations_are_written_as_they_are_read():
    assert [str(Duration.parse(text)) for text in ("8ep", "0.4dur", "1e2ba")] == [
        "8ep",
        "0.4dur",
        "100ba",
    ]


def test_steps_are_rounded_down_but_for_the_first():
    horizon = Horizon(103, 7)
    for text, steps in (("1.99ep", 13), ("0.25dur", 25), ("0.01ep", 1), ("0ep", 0)):
        assert horizon.steps(Duration.parse(text)) == steps


def test_a_budget_is_a_time_or_a_sum_at_a_price_per_hour():
    assert [clock_seconds(text) for text in ("2h", "90m", "1.5s")] == [7200.0, 5400.0, 1.5]
    assert budget_seconds("90m", None) == 5400.0
    assert budget_seconds("$20", 32.0) == budget_seconds("20$", 32.0) == 2250.0
    for text, price in (("$20", None), ("$20", 0.0), ("20", 1.0), ("2 h", 1.0), ("h", 1.0)):
        with pytest.raises(ValueError, match=r"must be a time|is money: set launch\.price"):
            budget_seconds(text, price)
