"""The cells of a proof: accuracy per seed, cost, and paired differences with intervals."""

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from resnet_recipes.report.comparison import group_seeds, read_settings
from resnet_recipes.run_folder.runs import RunRecord, find_shared_changes, iterate_runs

CONFIDENCE = 0.95  # probability that all intervals of one table hold

#: Columns of a CSV file with runs.
COLUMNS = ("recipe", "epochs", "seed", "top1_percent", "pflops", "mean_minutes")


class Cell(NamedTuple):
    """One recipe at one duration."""

    name: str  # the recipe, and settings that differ from other runs
    epochs: float
    top1: dict[int, float]  # accuracy in percent, by seed
    pflops: float | None
    minutes: float | None  # mean over the seeds, or measured separately; None if unusable

    @property
    def mean(self) -> float:
        """Mean accuracy over the seeds, in percent."""
        return fmean(self.top1.values())


class Difference(NamedTuple):
    """The advantage of a cell over another, in points, over the common seeds."""

    first: str
    second: str
    points: tuple[float, ...]  # differences by seed
    mean: float
    half_width: float | None  # half-width of the interval; None below two seeds
    p: float | None  # two-sided p-value; adjusted by Holm's method for several differences
    cost: float | None  # PFLOPs of the first divided by PFLOPs of the second
    result: str  # more accurate | less accurate | not settled


def read_cells(sources: Iterable[Path]) -> list[Cell]:
    """Return the finished runs of folders and CSV files as cells, by duration and name.

    If two sources have the same recipe at the same duration, the later one is used.
    """
    cells: dict[tuple[str, float], Cell] = {}
    for source in sources:
        cells |= {(cell.name, cell.epochs): cell for cell in _iterate_cells(source)}
    return sorted(cells.values(), key=lambda cell: (cell.epochs, cell.name))


def read_measured_cells(cells: Sequence[Cell], path: Path) -> list[Cell]:
    """Return the cells listed in a CSV file of recipe, epochs and minutes, with its minutes."""
    minutes = {
        (row["recipe"], float(row["epochs"])): float(row["minutes"]) for row in read_rows(path)
    }
    return [
        cell._replace(minutes=minutes[cell.name, cell.epochs])
        for cell in cells
        if (cell.name, cell.epochs) in minutes
    ]


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_cells(path: Path, cells: Sequence[Cell]) -> None:
    """Write a CSV file with one row for each run."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for cell in cells:
            cost = "" if cell.pflops is None else f"{cell.pflops:.6g}"
            minutes = "" if cell.minutes is None else f"{cell.minutes:.2f}"
            for seed, top1 in sorted(cell.top1.items()):
                table.writerow((cell.name, f"{cell.epochs:g}", seed, top1, cost, minutes))


def _iterate_cells(source: Path) -> Iterator[Cell]:
    if source.is_file():
        yield from _read_csv(source)
    else:
        finished = [run for run in iterate_runs(source) if run.state == "finished"]
        shared = find_shared_changes(finished)
        yield from (_make_cell(group.runs, shared) for group in group_seeds(finished))


def _read_csv(path: Path) -> Iterator[Cell]:
    """Yield the cells of a CSV file written by `write_cells`."""
    groups = defaultdict(list)
    for row in read_rows(path):
        groups[row["recipe"], float(row["epochs"])].append(row)
    for (name, epochs), rows in groups.items():
        top1 = {int(row["seed"]): float(row["top1_percent"]) for row in rows}
        cost, minutes = (
            float(rows[0][key]) if rows[0][key] else None for key in ("pflops", "mean_minutes")
        )
        yield Cell(name, epochs, top1, cost, minutes)


def _make_cell(runs: Sequence[RunRecord], shared: Sequence[str]) -> Cell:
    unshared = [change for change in runs[0].shown_changes if change not in shared]
    changes = (
        f" without {change[1:].removeprefix('methods.')}"
        if change.startswith("~")
        else f" with {change}"
        for change in unshared
        if not change.startswith("seed=")
    )
    return Cell(
        runs[0].recipe + "".join(changes),
        runs[0].epochs or 0.0,
        {int(read_settings(run.folder)["seed"]): run.top1_percent or 0.0 for run in runs},
        runs[0].pflops,
        fmean(run.minutes or 0.0 for run in runs),
    )


def compute_differences(pairs: Sequence[tuple[Cell, Cell]]) -> list[Difference]:
    """Return the advantage of the first cell of each pair over the second.

    Intervals hold simultaneously (Bonferroni), and so do the p values (Holm, 1979).
    """
    differences = [_compute_difference(first, second, len(pairs)) for first, second in pairs]
    tested = sorted((one.p, index) for index, one in enumerate(differences) if one.p is not None)
    highest = 0.0
    for rank, (p, index) in enumerate(tested):
        highest = max(highest, min(1.0, p * (len(tested) - rank)))
        differences[index] = differences[index]._replace(p=highest)
    return differences


def pair_neighbors(cells: Sequence[Cell], order: Sequence[str]) -> Iterator[tuple[Cell, Cell]]:
    """Yield every cell with the previous cell at the same duration, in the order of the names."""
    by_key = {(cell.name, cell.epochs): cell for cell in cells}
    for epochs in sorted({cell.epochs for cell in cells}):
        present = [by_key[name, epochs] for name in order if (name, epochs) in by_key]
        yield from ((second, first) for first, second in pairwise(present))


def _compute_difference(first: Cell, second: Cell, comparisons: int) -> Difference:
    seeds = sorted(first.top1.keys() & second.top1.keys())
    points = tuple(first.top1[seed] - second.top1[seed] for seed in seeds)
    mean = fmean(points) if points else math.nan
    half, p, result = None, None, "not settled"
    if len(points) > 1:
        tail = (1 - CONFIDENCE) / comparisons / 2
        degrees = len(points) - 1
        error = stdev(points) / math.sqrt(len(points))
        half = compute_quantile(1 - tail, degrees) * error
        p = 2 * (1 - compute_student_cdf(abs(mean) / error, degrees)) if error else float(mean == 0)
        if abs(mean) > half:
            result = "more accurate" if mean > 0 else "less accurate"
    cost = first.pflops / second.pflops if first.pflops and second.pflops else None
    return Difference(
        format_label(first), format_label(second), points, mean, half, p, cost, result
    )


def format_label(cell: Cell) -> str:
    """Return the name of a cell with its duration: "mild@8"."""
    return f"{cell.name}@{cell.epochs:g}"


def compute_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution for a `probability` above one half."""
    low, high = 0.0, 1e4
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if compute_student_cdf(middle, degrees) < probability else (low, middle)
        )
    return high


def compute_student_cdf(t: float, degrees: int) -> float:
    """Return the cumulative probability of Student's t distribution at t.

    Source: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(degrees))
    is_odd = degrees % 2
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for k in range(2 + is_odd, degrees + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k - 1) / k
    inside = 2 / math.pi * (angle + math.sin(angle) * total) if is_odd else math.sin(angle) * total
    return (1 + inside) / 2
