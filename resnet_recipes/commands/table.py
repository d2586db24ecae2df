"""A table on a terminal, with the columns that it has room for."""

import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence

from resnet_recipes.base.text import clock_time

_NUMBER = re.compile(r"[-?]|<?[\d.,:/?]+( [%\w]+)?")


def width() -> int:
    """Return the columns of the terminal; 80 in a pipe."""
    return shutil.get_terminal_size().columns


def line_width() -> int:
    """Return the columns of the terminal; in a pipe, which programs read, no line is wrapped."""
    return shutil.get_terminal_size((0, 0)).columns or sys.maxsize


def page_width() -> int:
    """Return the columns of a page of text: the terminal's, at most 100."""
    return min(width(), 100)


def table(rows: Sequence[Mapping[str, str]], drop: Sequence[str] = (), room: int = 0) -> list[str]:
    """Return rows under their heads, those of the first row, numbers to the right.

    Columns of `drop` are left out one by one until the rest fits into `room` characters, by
    default those of the terminal.
    """
    columns = {head: [head, *(row[head] for row in rows)] for head in rows[0]}
    widths = {head: max(map(len, cells)) for head, cells in columns.items()}
    for head in drop:
        if sum(widths.values()) + 2 * (len(widths) - 1) > (room or width()):
            widths.pop(head, None)
    aligned = [_aligned(columns[head], widths[head]) for head in widths]
    return ["  ".join(cells).rstrip() for cells in zip(*aligned, strict=True)]


def _aligned(cells: Sequence[str], width: int) -> list[str]:
    side = ">" if all(map(_NUMBER.fullmatch, cells[1:])) else "<"
    return [f"{cell:{side}{width}}" for cell in cells]


def or_dash(value: float | None, write: Callable[[float], str]) -> str:
    """Return a cell with a value, or with a dash if there is none."""
    return "-" if value is None else write(value)


def minutes(count: float) -> str:
    """Write minutes as a clock does."""
    return clock_time(60 * count)
