"""Types of settings: conversion of values, and descriptions for error messages."""

import math
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin, get_type_hints

from resnet_recipes.base.errors import BrokenRuleError

_DESCRIPTIONS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text, in quotes",
    type(None): "null",
}


@cache
def get_field_types(cls: type) -> dict[str, Any]:
    """Return the type of each field of a dataclass."""
    hints = get_type_hints(cls)
    return {item.name: hints[item.name] for item in fields(cls)}


def is_union(field_type: Any) -> bool:
    """Return whether a type is a choice, such as `int | str`."""
    return get_origin(field_type) in (Union, types.UnionType)


def find_dataclasses(field_type: Any) -> list[type]:
    """Return the dataclasses that a type allows."""
    return [
        option
        for option in (get_args(field_type) if is_union(field_type) else (field_type,))
        if is_dataclass(option)
    ]


def convert(value: Any, field_type: Any) -> Any:
    """Return `value` as `field_type`; text never becomes a number, nor a number text.

    Raises BrokenRuleError if that is impossible.
    """
    if is_dataclass(field_type):
        return _convert_record(value, field_type)
    converter = _CONVERTERS.get(get_origin(field_type) or field_type, _check_exact_type)
    return converter(value, field_type)


def describe_type(field_type: Any) -> str:
    """Describe a type for a message."""
    if field_type in _DESCRIPTIONS:
        return _DESCRIPTIONS[field_type]
    if is_union(field_type):
        others = find_dataclasses(field_type)[1:]  # one optimizer is enough as an example
        return " or ".join(
            "auto" if option is str else describe_type(option)
            for option in get_args(field_type)
            if option not in others
        )
    if is_dataclass(field_type):
        names = ", ".join(item.name for item in fields(field_type))
        return f"a mapping of {names}" if names else "{}"
    if get_origin(field_type) is dict:
        return "a mapping of names to numbers, true or false"
    return "a list, as in [a, b]"


def _check_type(value: Any, expected: Any, field_type: Any) -> Any:
    """Return a value of a type that can become `field_type`; booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, expected):
        raise BrokenRuleError(f"must be {describe_type(field_type)}")
    return value


def _convert_union(value: Any, field_type: Any) -> Any:
    for option in get_args(field_type):
        with suppress(BrokenRuleError):
            return convert(value, option)
    raise BrokenRuleError(f"must be {describe_type(field_type)}")


def _convert_list(value: Any, field_type: Any) -> list[Any]:
    return [
        convert(item, get_args(field_type)[0])
        for item in _check_type(value, list | tuple, field_type)
    ]


def _convert_tuple(value: Any, field_type: Any) -> tuple[Any, ...]:
    items = _check_type(value, list | tuple, field_type)
    options = get_args(field_type)
    if options[-1] is ...:
        options = options[:1] * len(items)
    if len(items) != len(options):
        raise BrokenRuleError(f"must be a list of {len(options)} values")
    return tuple(map(convert, items, options))


def _convert_mapping(value: Any, field_type: Any) -> dict[str, Any]:
    items = _check_type(value, dict, field_type).items()
    return {str(name): convert(item, get_args(field_type)[1]) for name, item in items}


def _convert_record(value: Any, cls: type) -> Any:
    """Build a dataclass from a mapping with every field that has no default."""
    if isinstance(value, cls):
        return value
    field_types = get_field_types(cls)
    mapping = _check_type(value, dict, cls)
    if unknown := sorted(map(str, set(mapping) - set(field_types))):
        raise BrokenRuleError(f"must be {describe_type(cls)} (not {', '.join(unknown)})")
    if absent := [
        item.name for item in fields(cls) if item.default is MISSING and item.name not in mapping
    ]:
        raise BrokenRuleError(f"must be {describe_type(cls)} ({', '.join(absent)} is missing)")
    return cls(**{name: convert(mapping[name], field_types[name]) for name in mapping})


def _convert_number(value: Any, field_type: Any) -> float:
    try:
        number = float(_check_type(value, Real, field_type))
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BrokenRuleError("must be a finite number")
    return number


def _convert_whole_number(value: Any, field_type: Any) -> int:
    number = int(_check_type(value, Integral, field_type))
    if not -(1 << 63) <= number < 1 << 63:
        raise BrokenRuleError("must be a whole number of at most 64 bits")
    return number


def _check_exact_type(value: Any, field_type: Any) -> Any:
    if type(value) is not field_type:
        raise BrokenRuleError(f"must be {describe_type(field_type)}")
    if field_type is str and not value.replace("\n", "").isprintable():
        raise BrokenRuleError("must be text without invisible characters")
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
