"""Say which factors of a sweep make recipes more accurate.

    python benchmarks/proof/factors.py benchmarks/proof/select.csv

Every column of the table that is not a result is a factor with two values, but for the seed, which
is a block. Top-1 is the sum of a mean, a term for each seed and one for each factor, by least
squares. A factor stays if its one-sided p is below 0.05.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from table import below

RESULTS = ("seed", "top1_percent", "pflops")
LEVEL = 0.05  # a factor stays if its p is below


class Effect(NamedTuple):
    """What the second value of a factor brings over the first."""

    name: str  # "at: loader instead of device"
    points: float
    error: float  # standard error, in points
    p: float  # one-sided


def effects(rows: Sequence[dict[str, str]]) -> list[Effect]:
    """Return the effect of each factor of a table of runs."""
    factors = [name for name in rows[0] if name not in RESULTS]
    values = {name: tuple(dict.fromkeys(row[name] for row in rows)) for name in factors}
    seeds = sorted({row["seed"] for row in rows})
    design = np.array(
        [
            [row["seed"] == seed for seed in seeds]
            + [row[name] == values[name][1] for name in factors]
            for row in rows
        ],
        dtype=float,
    )
    top1 = np.array([float(row["top1_percent"]) for row in rows])
    found = np.linalg.solve(design.T @ design, design.T @ top1)
    freedom = len(rows) - design.shape[1]
    variance = ((top1 - design @ found) ** 2).sum() / freedom
    errors = np.sqrt(variance * np.linalg.inv(design.T @ design).diagonal())
    return [
        Effect(
            f"{name}: {values[name][1]} instead of {values[name][0]}",
            float(points),
            float(error),
            1 - below(float(points / error), freedom),
        )
        for name, points, error in zip(
            factors, found[len(seeds) :], errors[len(seeds) :], strict=True
        )
    ]


def main() -> None:
    """Print the effects of a table of runs."""
    with Path(sys.argv[1]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = Table("factor", "points", "standard error", "one-sided p", "")
    for one in effects(rows):
        stays = "stays" if one.p < LEVEL else "goes"
        table.add_row(one.name, f"{one.points:+.2f}", f"{one.error:.2f}", f"{one.p:.2g}", stays)
    Console(width=None if sys.stdout.isatty() else 100).print(table)


if __name__ == "__main__":
    main()
