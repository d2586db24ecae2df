"""Where the names of lines stand in a plot: beside one of their points, and on nothing else."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import log
from typing import Any

Row = dict[str, Any]
Place = tuple[float, float]  # pixels from the left, and from the top

#: A plot as it is planned, in pixels; in a wider one, everything is further apart.
WIDTH, HEIGHT = 340, 300
#: Lines that are named: more names than this cannot be read.
MOST = 16

_FONT = 11  # as in plots.json

#: Where a name may stand: of the places that are equally free, the first is taken.
_SIDES = list(product((("left", 8), ("right", -8)), (0, -11, 11, -18, 18)))


def placed(lines: Sequence[Sequence[Row]], x: str, front: Sequence[Row]) -> list[Row]:
    """Return one row of each of the first MOST lines, with align, dx and dy of its name.

    Names avoid points, the lines that join them, and the front.
    """
    rows = [row for line in lines for row in line]
    across, down = [log(row[x]) for row in rows], [-row["top1_percent"] for row in rows]
    places = zip(_scaled(across, WIDTH), _scaled(down, HEIGHT), strict=True)
    place = dict(zip(map(id, rows), places, strict=True))
    taken = [dot for line in (*lines, front) for dot in _dots([place[id(row)] for row in line])]
    found = []
    for line in lines[:MOST]:
        options = [
            (row, align, dx, dy, _letters(place[id(row)], row["series"], dx, dy))
            for row in reversed(line)
            for (align, dx), dy in _SIDES
        ]
        row, align, dx, dy, letters = min(options, key=lambda option: _hits(option[-1], taken))
        taken += letters
        found.append(row | {"align": align, "dx": dx, "dy": dy})
    return found


def _scaled(values: Sequence[float], size: float) -> Iterator[float]:
    low, high = min(values, default=0), max(values, default=0)
    return (size * (value - low) / ((high - low) or 1) for value in values)


def _dots(line: Sequence[Place]) -> Iterator[Place]:
    """Yield places on a line: each point as often as it matters more than what joins them."""
    for point in line:
        yield from [point] * 9
    for (left, top), (right, bottom) in pairwise(line):
        for part in range(1, 30):
            yield left + (right - left) * part / 30, top + (bottom - top) * part / 30


def _letters(place: Place, name: str, dx: int, dy: int) -> list[Place]:
    """Return the middle of each letter of a name."""
    step = 0.55 * _FONT * (1 if dx > 0 else -1)
    return [(place[0] + dx + step * (count + 0.5), place[1] + dy) for count in range(len(name))]


def _hits(letters: Sequence[Place], taken: Sequence[Place]) -> int:
    """Return how much of what is drawn is under letters, and how many are beyond the plot."""
    outside = sum(not (-20 < x < WIDTH + 70 and 0 <= y <= HEIGHT) for x, y in letters)
    return 9 * outside + sum(
        abs(x - left) < _FONT / 2 and abs(y - top) < _FONT
        for x, y in letters
        for left, top in taken
    )
