"""Tables of test cases: one case per line, with cells separated by ` | `."""

import re

import yaml


def parse_rows(text: str) -> list[tuple[str, ...]]:
    """Return the cells of each line; an empty cell is an empty text."""
    return [tuple(re.split(r"\s+\|(?:\s+|$)", line)) for line in text.strip("\n").splitlines()]


def parse_values(text: str) -> list[list[object]]:
    """Return the cells of each line, parsed as YAML; an empty cell is None."""
    return [[yaml.safe_load(cell) for cell in row] for row in parse_rows(text)]
