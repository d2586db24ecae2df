"""The table of a proof.

Accuracy of every seed, cost, and paired differences with their intervals.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from resnet_recipes.measure.comparison import grouped, settings
from resnet_recipes.measure.runs import RunRecord, runs_in

CONFIDENCE = 0.95  # that all intervals of one table hold together


class Cell(NamedTuple):
    """One recipe at one length."""

    name: str  # the recipe, and the methods it goes without
    epochs: float
    top1: dict[int, float]  # percent, by seed
    pflops: float | None
    minutes: float  # mean over the seeds

    @property
    def mean(self) -> float:
        """Mean accuracy over the seeds, in percent."""
        return fmean(self.top1.values())


class Difference(NamedTuple):
    """What one cell has over another, in points, over the seeds that both have."""

    first: str
    second: str
    points: tuple[float, ...]  # by seed
    mean: float
    half_width: float | None  # of the interval; None below two seeds
    cost: float | None  # PFLOPs of the first by those of the second
    verdict: str  # more accurate | less accurate | not settled


def cells_of(root: Path) -> list[Cell]:
    """Return the finished runs of a folder as cells, by length and name."""
    finished = [run for run in runs_in(root) if run.state == "finished"]
    cells = (_cell(group.runs) for group in grouped(finished))
    return sorted(cells, key=lambda cell: (cell.epochs, cell.name))


def _cell(runs: Sequence[RunRecord]) -> Cell:
    without = [change[1:] for change in runs[0].changes if change.startswith("~")]
    name = " without ".join([runs[0].recipe, *(key.removeprefix("methods.") for key in without)])
    return Cell(
        name,
        runs[0].epochs or 0.0,
        {int(settings(run.folder)["seed"]): run.top1_percent or 0.0 for run in runs},
        runs[0].pflops,
        fmean(run.minutes or 0.0 for run in runs),
    )


def differences(wanted: Sequence[tuple[Cell, Cell]]) -> list[Difference]:
    """Return what the first cell of each pair has over the second.

    Intervals hold together (Bonferroni).
    """
    return [_difference(first, second, len(wanted)) for first, second in wanted]


def neighbours(cells: Sequence[Cell], order: Sequence[str]) -> Iterator[tuple[Cell, Cell]]:
    """Yield at each length every cell with the one before it, in the order of the names."""
    by_place = {(cell.name, cell.epochs): cell for cell in cells}
    for epochs in sorted({cell.epochs for cell in cells}):
        present = [by_place[name, epochs] for name in order if (name, epochs) in by_place]
        yield from ((second, first) for first, second in pairwise(present))


def _difference(first: Cell, second: Cell, comparisons: int) -> Difference:
    seeds = sorted(first.top1.keys() & second.top1.keys())
    points = tuple(first.top1[seed] - second.top1[seed] for seed in seeds)
    mean = fmean(points) if points else math.nan
    half, verdict = None, "not settled"
    if len(points) > 1:
        tail = (1 - CONFIDENCE) / comparisons / 2
        half = quantile(1 - tail, len(points) - 1) * stdev(points) / math.sqrt(len(points))
        if abs(mean) > half:
            verdict = "more accurate" if mean > 0 else "less accurate"
    cost = first.pflops / second.pflops if first.pflops and second.pflops else None
    return Difference(label(first), label(second), points, mean, half, cost, verdict)


def label(cell: Cell) -> str:
    """Return the name of a cell with its length: "mild@8"."""
    return f"{cell.name}@{cell.epochs:g}"


def quantile(probability: float, freedom: int) -> float:
    """Return Student's t below which `probability` of the distribution lies, above one half."""
    low, high = 0.0, 1e4
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < probability else (low, middle)
    return high


def _below(t: float, freedom: int) -> float:
    """Return the share of Student's distribution below t.

    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(freedom))
    is_odd = freedom % 2
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for k in range(2 + is_odd, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k - 1) / k
    inside = 2 / math.pi * (angle + math.sin(angle) * total) if is_odd else math.sin(angle) * total
    return (1 + inside) / 2
