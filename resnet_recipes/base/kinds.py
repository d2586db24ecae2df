"""The types of settings: which values fit, and what to tell a person when one does not."""

import math
import types
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin, get_type_hints

_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text, in quotes",
    type(None): "null",
}


class WrongTypeError(Exception):
    """A value does not fit; the message completes "must be ..."."""


@cache
def kinds_of(cls: type) -> dict[str, Any]:
    """Return the type of each field of a dataclass."""
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls)}


def is_union(kind: Any) -> bool:
    """Return whether a type is a choice, such as `int | str`."""
    return get_origin(kind) in (Union, types.UnionType)


def dataclasses_in(kind: Any) -> list[type]:
    """Return the dataclasses that a type allows."""
    return [
        option for option in (get_args(kind) if is_union(kind) else (kind,)) if is_dataclass(option)
    ]


def converted(value: Any, kind: Any) -> Any:
    """Return `value` as `kind`; text never becomes a number, nor a number text.

    Raises WrongTypeError.
    """
    if is_union(kind):
        for option in get_args(kind):
            try:
                return converted(value, option)
            except WrongTypeError:
                continue
        raise WrongTypeError(words(kind))
    if get_origin(kind) is list:
        return [converted(item, get_args(kind)[0]) for item in _items(value, kind)]
    if get_origin(kind) is tuple:
        items = _items(value, kind)
        if len(items) != len(get_args(kind)):
            raise WrongTypeError(f"a list of {len(get_args(kind))} values")
        return tuple(
            converted(item, option) for item, option in zip(items, get_args(kind), strict=True)
        )
    if get_origin(kind) is dict:
        if not isinstance(value, dict):
            raise WrongTypeError(words(kind))
        return {str(name): converted(item, get_args(kind)[1]) for name, item in value.items()}
    if is_dataclass(kind):
        return value if isinstance(value, kind) else _record(value, kind)
    if kind is float and isinstance(value, Real) and not isinstance(value, bool):
        return _finite(value)
    if kind is int and isinstance(value, Integral) and not isinstance(value, bool):
        return _bounded(int(value))
    if type(value) is not kind:
        raise WrongTypeError(words(kind))
    if kind is str and not value.replace("\n", "").isprintable():
        raise WrongTypeError("text without invisible characters")
    return value


def words(kind: Any) -> str:
    """Describe a type to a person."""
    if kind in _WORDS:
        return _WORDS[kind]
    if is_union(kind):
        others = dataclasses_in(kind)[1:]  # one optimizer is enough as an example
        return " or ".join(words(option) for option in get_args(kind) if option not in others)
    if is_dataclass(kind):
        names = ", ".join(item.name for item in fields(kind))
        return f"a mapping of {names}" if names else "{}"
    if get_origin(kind) is dict:
        return "a mapping of names to numbers, true or false"
    return "a list, as in [a, b]"


def _items(value: Any, kind: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise WrongTypeError(words(kind))
    return value


def _record(value: Any, cls: type) -> Any:
    """Build a dataclass from a mapping, which needs every field that has no default."""
    if not isinstance(value, dict):
        raise WrongTypeError(words(cls))
    kinds = kinds_of(cls)
    if strange := sorted(map(str, set(value) - set(kinds))):
        raise WrongTypeError(f"{words(cls)} (not {', '.join(strange)})")
    if absent := [
        item.name for item in fields(cls) if item.default is MISSING and item.name not in value
    ]:
        raise WrongTypeError(f"{words(cls)} ({', '.join(absent)} is missing)")
    return cls(**{name: converted(value[name], kinds[name]) for name in value})


def _finite(value: Real) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise WrongTypeError("a finite number")
    return number


def _bounded(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise WrongTypeError("a whole number of at most 64 bits")
    return value
