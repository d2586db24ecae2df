"""Suggest the intended value when a value does not fit its setting."""

import re
from collections.abc import Sequence
from typing import Any, get_args, get_origin

from resnet_recipes.base.duration import Duration, is_duration
from resnet_recipes.base.errors import Change, Hint, Problem, Value
from resnet_recipes.base.field_types import get_field_types, is_union
from resnet_recipes.base.limits import Bounds, IsDuration, Limit, get_limits
from resnet_recipes.base.suggestions import (
    FOREIGN_VALUES,
    OFF,
    UNITS,
    apply_translation,
    find_closest,
)

ON = ("true", "yes", "on", "1")

#: From this number on, a value without a unit counts steps, not epochs; not for max_duration.
MIN_STEPS = 100

_NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:e[0-9])?)"
_MEASURE = re.compile(rf"\$?{_NUMBER} ?([a-z%$/]*)")
_SQUARE = re.compile(rf"[\[(]?{_NUMBER}(?:, ?|x){_NUMBER}[\])]?")
_TYPED_AMOUNT = re.compile(
    rf"(?:\$|usd|eur|\u20ac) ?{_NUMBER}|{_NUMBER} ?(?:\$|usd|eur|\u20ac|dollars?)"
)
#: 1:30:00 or 1h30m
_CLOCK_TIME = re.compile(
    r"(\d{1,3})(?: ?h(?:ours?)? ?|:)([0-5]?\d) ?(?:m(?:in(?:utes)?)?|:([0-5]\d))?"
)


def add_likely_value(problem: Problem, cls: type, name: str, value: object) -> Problem:
    """Return a problem of a section's setting with the most likely intended value added.

    A found value replaces the problem's fix. Without one, a problem that has no fix gets the hint
    of its limits.
    """
    key = f"{getattr(cls, '_prefix', '')}{name}"
    text = _make_text(value)
    group = key.removesuffix(".name")  # "optimizer", from optimizer.name
    if ours := FOREIGN_VALUES.get(key, {}).get(text) or FOREIGN_VALUES.get(group, {}).get(text):
        return apply_translation(problem, ours)
    likely_value = _guess_value(cls, name, text)
    if not likely_value or likely_value == _make_text(value, quotes=True):
        limits = get_limits(cls).get(name, ())
        hints = (limit.fix for limit in limits if isinstance(limit.fix, Hint))
        return problem if problem.fix else problem._replace(fix=next(hints, ()))
    is_change = isinstance(likely_value, Change)
    return problem._replace(fix=likely_value if is_change else Value(likely_value))


def read_time(text: str) -> str:
    """Return a time in the format of settings: "90m" for "1h30m" or "1:30:00"; "" if invalid."""
    text = text.strip("'\" ").lower()
    if clock := _CLOCK_TIME.fullmatch(text):
        hours, minutes, *seconds = (int(part or 0) for part in clock.groups())
        return f"{60 * hours + minutes + any(seconds)}m"
    number, unit = _split_unit(text)
    return f"{number:.12g}{unit}" if unit in ("h", "m", "s") else ""


def read_budget(text: str) -> str:
    """Return a budget in the format of the setting: a time or an amount like $20; "" if invalid."""
    money = _TYPED_AMOUNT.fullmatch(text.strip("'\" ").lower())
    return f"${money[1] or money[2]}" if money else read_time(text)


def read_epochs(text: str) -> str:
    """Return the intended value of `epochs`, or the budget; "" if unknown."""
    return _read_duration(_make_text(text), "max_duration", "", ("ep", "ba"))


def _make_text(value: object, quotes: bool = False) -> str:
    """Return a value as written, in lower case; by default without quotes and stray characters."""
    items = [_make_text(item) for item in value] if isinstance(value, list | tuple) else []
    text = f"[{','.join(items)}]" if items else str(value)
    if quotes:
        return text
    return re.sub(r"[\s'\"]+", " ", text).strip(" =,;").lower()


def _split_unit(text: str) -> tuple[float, str]:
    """Return the number in a text, and its unit: "%", "ep", "ba", "h", "m", "s" or "".

    Returns (0, "?") if the text is not a number.
    """
    measure = _MEASURE.fullmatch(text)
    if not measure or (measure[2] or "number") not in UNITS:
        return 0, "?"
    number = float(measure[1])
    unit = UNITS[measure[2] or "number"].text
    hours = {"d": 24, "w": 168}.get(unit)
    return (number * hours, "h") if hours else (number, unit)


def _guess_value(cls: type, name: str, text: str) -> str:
    """Return the intended value, or a complete setting; "" if unknown."""
    field_type = get_field_types(cls)[name]
    limits = get_limits(cls).get(name, ())
    options = get_args(field_type) if is_union(field_type) else (field_type,)
    if get_origin(field_type) in (list, tuple):
        return _read_list(text, field_type, limits)
    if durations := [limit for limit in limits if isinstance(limit, IsDuration)]:
        return _read_duration(text, name, str(getattr(cls(), name)), durations[0].units)
    if bool in options:
        return "true" if text in ON else "false" if text in OFF else ""
    if int in options or float in options:
        number = _read_number(text, float in options, limits)
        if number and not any(limit.find_broken_rule(float(number)) for limit in limits):
            return number
    return next((find_closest(text, limit.valid) for limit in limits if limit.valid), "")


def _read_list(text: str, field_type: Any, limits: Sequence[Limit]) -> str:
    if text in OFF and get_origin(field_type) is list:
        return "[]"
    items = text.strip("[]()").split(",")
    items = [item.strip() for item in items if item.strip()]
    for limit in limits:
        if limit.valid:
            items = [
                item if item in limit.valid else find_closest(item, limit.valid) for item in items
            ]
        if isinstance(limit, IsDuration):
            items = [f"{item}ep" if re.fullmatch(_NUMBER, item) else item for item in items]
    types = get_args(field_type)
    is_short = get_origin(field_type) is tuple and types[-1] is not ... and len(items) != len(types)
    return "" if is_short or not all(items) else f"[{','.join(items)}]"


def _read_duration(text: str, name: str, default: str, units: Sequence[str]) -> str:
    """Return a duration in the intended unit; a time or an amount of money becomes a budget."""
    if budget := read_budget(text):
        return Change(f"budget={budget}") if name == "max_duration" else ""
    number, unit = _split_unit(text)
    if unit == "":
        unit = Duration.parse(default).unit if default else "ep"
        unit = "ep" if unit == "dur" and number > 1 else unit
        unit = "ba" if unit == "ep" and number >= MIN_STEPS and name != "max_duration" else unit
    if unit == "%":
        number = number / 100
        unit = "dur"
    likely_value = f"{number:.12g}{unit}"
    is_valid = unit in units and number and is_duration(likely_value)
    return Value(likely_value) if is_valid else ""


def _read_number(text: str, takes_fractions: bool, limits: Sequence[Limit]) -> str:
    """Return the intended number: a side of a square, or a number with a unit."""
    if (square := _SQUARE.fullmatch(text)) and square[1] == square[2]:
        text = square[1]
    number, unit = _split_unit(text)
    bounds = [limit for limit in limits if isinstance(limit, Bounds)]
    most = min(bounds[0].most, bounds[0].below) if bounds else None
    if most == 100 and unit in ("", "%"):
        number *= 100 if unit == "" and number <= 1 else 1
    elif unit == "%" or (unit == "" and most == 1 and 5 <= number <= 100):  # a percentage
        number /= 100
    elif unit:
        return ""
    return f"{number:.12g}" if takes_fractions or number == int(number) else ""
