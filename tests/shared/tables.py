"""Tables and settings as text, for tests of all packages."""

import csv
import re
from typing import Any

import yaml


def parse_rows(text: str) -> list[tuple[str, ...]]:
    """Return the cells of each line; an empty cell is an empty text."""
    return [tuple(re.split(r"\s+\|(?:\s+|$)", line)) for line in text.strip("\n").splitlines()]


def parse_values(text: str) -> list[list[object]]:
    """Return the cells of each line, parsed as YAML; an empty cell is None."""
    return [[yaml.safe_load(cell) for cell in row] for row in parse_rows(text)]


def merge_sections(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge_sections(result[key], value) if both else value
    return result


def parse_settings(arguments: str) -> dict[str, Any]:
    """Parse arguments such as `data.train_size=32 methods.ema={}` into sections."""
    tree: dict[str, Any] = {}
    for argument in arguments.split():
        key, _, text = argument.partition("=")
        value = yaml.safe_load(text)
        for name in reversed(key.split(".")):
            value = {name: value}
        tree = merge_sections(tree, value)
    return tree


def read_csv_rows(name: str) -> list[dict[str, str]]:
    with open(name) as file:
        return [*csv.DictReader(file)]
