"""Tables of cases as people write them: a case a line, its cells apart by ` | `."""

import re


def rows(text: str) -> list[tuple[str, ...]]:
    """Return the cells of each line; an empty cell is an empty text."""
    return [tuple(re.split(r"\s+\|(?:\s+|$)", line)) for line in text.strip("\n").splitlines()]
