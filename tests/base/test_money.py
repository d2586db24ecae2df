"""Prices per hour and costs."""

import pytest

from resnet_recipes.base.money import clean_price, format_amount, format_cost, format_price


@pytest.mark.parametrize("text", ["32.77", "$32.77", "32.77$", "32.77/h", "$32.77/h"])
def test_clean_price_keeps_only_the_number(text):
    assert clean_price(text) == "32.77"


@pytest.mark.parametrize("text", ["", "$", "free", "-1", "$-1", "/h", "null", "3 EUR", "$$3"])
def test_clean_price_keeps_other_text(text):
    assert clean_price(text) == text


@pytest.mark.parametrize(
    ("price", "text"),
    [(1.2, "$1.20"), (32.77, "$32.77"), (0.526, "$0.526"), (1234.5, "$1,234.50"), (3, "$3.00")],
)
def test_format_price_has_at_least_two_decimals(price, text):
    assert format_price(price) == f"{text} per hour"


@pytest.mark.parametrize(
    ("cost", "text"), [(0.0, "$0.00"), (0.004, "<$0.01"), (0.005, "$0.01"), (1234.5, "$1,234.50")]
)
def test_format_amount_prints_cents(cost, text):
    assert format_amount(cost) == text
    assert format_cost(cost, 1.2) == f"{text} at $1.20 per hour"
