"""Types of settings: conversion of values, and descriptions for error messages."""

import math
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
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
def get_kinds(cls: type) -> dict[str, Any]:
    """Return the type of each field of a dataclass."""
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls)}


def is_union(kind: Any) -> bool:
    """Return whether a type is a choice, such as `int | str`."""
    return get_origin(kind) in (Union, types.UnionType)


def find_dataclasses(kind: Any) -> list[type]:
    """Return the dataclasses that a type allows."""
    return [
        option for option in (get_args(kind) if is_union(kind) else (kind,)) if is_dataclass(option)
    ]


def convert(value: Any, kind: Any) -> Any:
    """Return `value` as `kind`; text never becomes a number, nor a number text.

    Raises WrongTypeError if that is impossible.
    """
    if is_dataclass(kind):
        return _convert_record(value, kind)
    return _CONVERTERS.get(get_origin(kind) or kind, _check_exact_type)(value, kind)


def parse_texts(cls: type, texts: Mapping[str, str]) -> Any:
    """Return a dataclass parsed from texts; "" becomes None for an optional number."""

    def value(text: str, kind: Any) -> Any:
        number = (get_args(kind) or (kind,))[0]
        return None if number is not str and not text else number(text)

    return cls(**{name: value(texts[name], kind) for name, kind in get_kinds(cls).items()})


def describe_kind(kind: Any) -> str:
    """Describe a type for a message."""
    if kind in _WORDS:
        return _WORDS[kind]
    if is_union(kind):
        others = find_dataclasses(kind)[1:]  # one optimizer is enough as an example
        return " or ".join(
            describe_kind(option) for option in get_args(kind) if option not in others
        )
    if is_dataclass(kind):
        names = ", ".join(item.name for item in fields(kind))
        return f"a mapping of {names}" if names else "{}"
    if get_origin(kind) is dict:
        return "a mapping of names to numbers, true or false"
    return "a list, as in [a, b]"


def _check_type(value: Any, expected: Any, kind: Any) -> Any:
    """Return a value of a type that can become `kind`; booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, expected):
        raise WrongTypeError(describe_kind(kind))
    return value


def _convert_union(value: Any, kind: Any) -> Any:
    for option in get_args(kind):
        with suppress(WrongTypeError):
            return convert(value, option)
    raise WrongTypeError(describe_kind(kind))


def _convert_list(value: Any, kind: Any) -> list[Any]:
    return [convert(item, get_args(kind)[0]) for item in _check_type(value, list | tuple, kind)]


def _convert_tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    items, options = _check_type(value, list | tuple, kind), get_args(kind)
    if options[-1] is ...:
        options = options[:1] * len(items)
    if len(items) != len(options):
        raise WrongTypeError(f"a list of {len(options)} values")
    return tuple(map(convert, items, options))


def _convert_mapping(value: Any, kind: Any) -> dict[str, Any]:
    items = _check_type(value, dict, kind).items()
    return {str(name): convert(item, get_args(kind)[1]) for name, item in items}


def _convert_record(value: Any, cls: type) -> Any:
    """Build a dataclass from a mapping with every field that has no default."""
    if isinstance(value, cls):
        return value
    kinds, mapping = get_kinds(cls), _check_type(value, dict, cls)
    if unknown := sorted(map(str, set(mapping) - set(kinds))):
        raise WrongTypeError(f"{describe_kind(cls)} (not {', '.join(unknown)})")
    if absent := [
        item.name for item in fields(cls) if item.default is MISSING and item.name not in mapping
    ]:
        raise WrongTypeError(f"{describe_kind(cls)} ({', '.join(absent)} is missing)")
    return cls(**{name: convert(mapping[name], kinds[name]) for name in mapping})


def _convert_number(value: Any, kind: Any) -> float:
    try:
        number = float(_check_type(value, Real, kind))
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise WrongTypeError("a finite number")
    return number


def _convert_whole_number(value: Any, kind: Any) -> int:
    number = int(_check_type(value, Integral, kind))
    if not -(1 << 63) <= number < 1 << 63:
        raise WrongTypeError("a whole number of at most 64 bits")
    return number


def _check_exact_type(value: Any, kind: Any) -> Any:
    if type(value) is not kind:
        raise WrongTypeError(describe_kind(kind))
    if kind is str and not value.replace("\n", "").isprintable():
        raise WrongTypeError("text without invisible characters")
    return value


_CONVERTERS: dict[Any, Callable[[Any, Any], Any]] = {
    Union: _convert_union,
    types.UnionType: _convert_union,
    list: _convert_list,
    tuple: _convert_tuple,
    dict: _convert_mapping,
    float: _convert_number,
    int: _convert_whole_number,
}


def to_plain(value: Any) -> Any:
    """Return nested mappings and lists with lists instead of tuples, as in YAML."""
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, list | tuple) else value


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one mapping with dotted keys and plain values."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and (value or not prefix):  # a section may be empty: methods: {}
            leaves |= flatten(value, f"{prefix}{key}.")
        else:
            leaves[prefix + key] = to_plain(value)
    return leaves
