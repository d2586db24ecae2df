"""Report which factors of a sweep make recipes more accurate.

    python benchmarks/proof/factors.py benchmarks/proof/select.csv

Every column of the table that is not a result is a factor with two values, except for `set` or
`seed`, which is a block. Top-1 is modeled as the sum of a mean, a term for each block and a term
for each factor, by least squares. The report marks a one-sided p below 0.05.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from table import compute_student_cdf, read_rows

RESULT_COLUMNS = ("top1_percent", "pflops", "loss", "cpu_seconds", "wall_seconds")
SIGNIFICANT_P = 0.05  # the report marks a p below this


class Effect(NamedTuple):
    """The gain of the second value of a factor over the first."""

    name: str  # "at: loader instead of device"
    points: float
    error: float  # standard error, in points
    p: float  # one-sided p-value


def compute_effects(rows: Sequence[dict[str, str]]) -> list[Effect]:
    """Return the effect of each factor of a table of runs."""
    block = "set" if "set" in rows[0] else "seed"
    values = {
        name: dict.fromkeys(row[name] for row in rows)
        for name in rows[0]
        if name not in (block, *RESULT_COLUMNS)
    }
    blocks = sorted({row[block] for row in rows})
    design = np.array(
        [
            [row[block] == one for one in blocks]
            + [row[name] == second for name, (_, second) in values.items()]
            for row in rows
        ],
        dtype=float,
    )
    top1 = np.array([float(row["top1_percent"]) for row in rows])
    inverse = np.linalg.inv(design.T @ design)
    effects = inverse @ design.T @ top1
    freedom = len(rows) - design.shape[1]
    variance = ((top1 - design @ effects) ** 2).sum() / freedom
    errors = np.sqrt(variance * inverse.diagonal())
    terms = zip(effects[len(blocks) :].tolist(), errors[len(blocks) :].tolist(), strict=True)
    return [
        Effect(
            f"{name}: {second} instead of {first}",
            points,
            error,
            1 - compute_student_cdf(points / error, freedom),
        )
        for (name, (first, second)), (points, error) in zip(values.items(), terms, strict=True)
    ]


def main() -> None:
    """Print the effects of a table of runs."""
    print(f"{'factor':<40}{'points':>8}{'standard error':>16}{'one-sided p':>13}")
    for one in compute_effects(read_rows(Path(sys.argv[1]))):
        note = f"  p < {SIGNIFICANT_P}" if one.p < SIGNIFICANT_P else ""
        print(f"{one.name:<40}{one.points:>+8.2f}{one.error:>16.2f}{one.p:>13.2g}{note}")


if __name__ == "__main__":
    main()
