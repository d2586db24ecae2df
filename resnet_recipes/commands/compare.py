"""`resnet-recipes compare RUN RUN ...`: what differs between runs, and whether seeds explain it."""

import json
from collections.abc import Iterator, Sequence
from shutil import get_terminal_size

from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.places import run_places
from resnet_recipes.measure.comparison import (
    Group,
    differences,
    grouped,
    machine,
    read_all,
    settings,
)
from resnet_recipes.measure.runs import RunRecord
from resnet_recipes.report.text import clock_time, pflops, printable


def run(arguments: Arguments) -> int:
    """Print the differing settings, machines and results of two or more run folders."""
    runs = read_all(run_places(arguments.words))
    differing = differences([settings(run.folder) for run in runs])
    tables = {
        "settings": [row for row in differing if row[0] not in ("run.name", "about")],
        "machine": differences([machine(run.folder) for run in runs]),
    }
    groups = grouped(runs)
    if "--json" in arguments:
        print(
            json.dumps(
                {
                    "runs": [run.as_dict() for run in runs],
                    **{name: dict(rows) for name, rows in tables.items()},
                    "groups": [_group(group) for group in groups],
                },
                indent=2,
            )
        )
        return 0
    for letter, one in zip(_letters(len(runs)), runs, strict=True):
        print(f"{letter}  {printable(one.folder)}")
    for name, rows in (*tables.items(), ("results", _results(runs))):
        print()
        print(
            table(name.upper(), _letters(len(runs)), rows) if rows else f"{name.upper()}: the same"
        )
    _seeds(groups)
    return 0


def _letters(count: int) -> list[str]:
    return [chr(ord("A") + i) if i < 26 else str(i + 1) for i in range(count)]


def table(title: str, heads: Sequence[str], rows: Sequence[tuple[str, list[str]]]) -> str:
    """Return a row per key and a column per side, or a few lines per key if that is too wide."""
    cells = [list(map(printable, (key, *values))) for key, values in [(title, heads), *rows]]
    widths = [max(8, *map(len, column)) for column in zip(*cells, strict=True)]
    if sum(widths) + 2 * len(heads) > get_terminal_size().columns:
        return "\n".join(
            [title, *(line for key, *values in cells[1:] for line in _stacked(key, heads, values))]
        )
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def _stacked(key: str, heads: Sequence[str], values: Sequence[str]) -> Iterator[str]:
    """Yield a key, and below it each value with the sides that have it."""
    yield f"  {key}"
    for value in dict.fromkeys(values):
        sides = ", ".join(head for head, own in zip(heads, values, strict=True) if own == value)
        yield f"    {sides}: {value}"


def _results(runs: list[RunRecord]) -> list[tuple[str, list[str]]]:
    def time(minutes: float | None) -> str:
        return "-" if minutes is None else clock_time(60 * minutes)

    return [
        ("state", [run.state for run in runs]),
        ("epochs", [f"{run.epochs_done:.4g}" for run in runs]),
        (
            "top-1",
            ["-" if run.top1_percent is None else f"{run.top1_percent:.2f} %" for run in runs],
        ),
        ("PFLOPs", ["-" if run.pflops is None else pflops(run.pflops) for run in runs]),
        ("training", [time(run.minutes) for run in runs]),
        ("papers' clock", [time(run.minutes_papers) for run in runs]),
        ("MLPerf's clock", [time(run.minutes_mlperf) for run in runs]),
        ("wall clock", [time(run.wall_minutes) for run in runs]),
        ("devices", [run.devices for run in runs]),
    ]


def _seeds(groups: list[Group]) -> None:
    """Print how much results vary with the seed alone, and whether groups differ by more."""
    several = [group for group in groups if group.noise is not None]
    if not several:
        print(
            "\nThere is one run of each: one seed cannot tell a difference from noise. Repeat "
            "with seed=1,2,3."
        )
        return
    print()
    for group in groups:
        if group.mean_top1 is not None:
            noise = f" +- {group.noise:.2f}" if group.noise is not None else ""
            names = ", ".join(printable(run.name) for run in group.runs)
            print(f"top-1 {group.mean_top1:.2f}{noise} % over {len(group.top1)} seeds: {names}")
    if len(several) > 1:
        best, second = sorted(
            (g for g in several if g.mean_top1 is not None), key=lambda g: -g.mean_top1
        )[:2]
        gap = best.mean_top1 - second.mean_top1
        error = (best.noise**2 / len(best.top1) + second.noise**2 / len(second.top1)) ** 0.5
        verdict = "more than" if gap > 2 * error else "no more than"
        print(
            f"The best two are {gap:.2f} points apart, {verdict} twice the standard error of "
            "that difference "
            f"({error:.2f})."
        )


def _group(group: Group) -> dict[str, object]:
    return {
        "runs": [run.name for run in group.runs],
        "mean_top1_percent": group.mean_top1,
        "noise": group.noise,
        "minutes": group.minutes,
    }
