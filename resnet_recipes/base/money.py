"""Prices per hour and costs: read from arguments, and formatted."""

import re

_PRICE_PER_HOUR = re.compile(r"\$?([\d.][^$/]*)\$?(?:/h)?")

MIN_AMOUNT = 0.005  # smaller amounts are shown as "<$0.01"


def clean_price(text: str) -> str:
    """Return the number in a price per hour such as $32.77/h; other text is unchanged."""
    match = _PRICE_PER_HOUR.fullmatch(text)
    return match[1] if match else text


def compute_cost(seconds: float, price: float) -> float:
    """Return the cost of a time at a price per hour."""
    return seconds / 3600 * price


def format_price(price: float) -> str:
    """Format a price per hour with all its decimals, at most four and at least two."""
    return f"${re.sub('0{1,2}$', '', f'{price:,.4f}')} per hour"


def format_amount(cost: float) -> str:
    """Format an amount of money in cents."""
    return f"${cost:,.2f}" if cost >= MIN_AMOUNT or cost <= 0 else "<$0.01"


def format_cost(cost: float, price: float) -> str:
    """Format a cost with the price that it is calculated from."""
    return f"{format_amount(cost)} at {format_price(price)}"
