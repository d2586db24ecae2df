"""Train recipes for several durations and seeds, and report which differences are significant.

    python benchmarks/proof DATA [--epochs 4,8] [--seeds 1,2,3] [--recipes tiny_baseline,tiny_mild]
        [--root runs/proof] [--quick] [--json FILE] [key=value ...]
    python benchmarks/proof --table runs/proof [--epochs 4,8] [--recipes tiny_baseline,tiny_mild]
        [--against tiny_mild@8:tiny_baseline@4] [--minutes FILE] [--csv FILE] [--png FILE]

DATA has train/ and val/ by class. The runs are one sweep of `resnet-train -m`, seed by seed; if it
is stopped, the same command continues it. Every recipe is compared at each duration with the
previous one in `--recipes`, and the pairs of `--against` with each other, all over the same seeds.
The intervals of one call hold simultaneously, as do its p values by Holm's method, which are more
sensitive. `--table` only reads runs, from folders and from files written by `--csv`, at all
durations unless `--epochs` selects some. `--minutes` is a file of separately measured minutes, and
`--png` then also plots accuracy against minutes. `--quick` trains on a few generated images to test
the command; its numbers are meaningless.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from table import (
    CONFIDENCE,
    Cell,
    Difference,
    compute_differences,
    format_label,
    pair_neighbors,
    read_cells,
    read_measured_cells,
    write_cells,
)

from resnet_recipes.data import demo
from resnet_recipes.report.page.charts import plot_accuracy, write_pictures
from resnet_recipes.report.page.html import Figure

RECIPES = Path(__file__).parent / "recipes"


def main() -> int:
    """Train missing runs, then print the table and write it to files if requested."""
    arguments, settings = parse_arguments()
    if arguments.data:
        train(arguments, settings)
    cells = read_cells(arguments.table or [arguments.root])
    differences = compute_differences(list_pairs(cells, arguments))
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(format_accuracies(cells))
    if differences:
        console.print(format_intervals(differences))
    if arguments.json:
        rows = [cell._asdict() | {"mean_top1_percent": cell.mean} for cell in cells]
        results = {"cells": rows, "differences": [one._asdict() for one in differences]}
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.csv:
        write_cells(arguments.csv, cells)
    if arguments.png:
        plots = {figure.name: figure.spec for figure in draw_figures(cells, arguments)}
        write_pictures(arguments.png.parent, plots)
    return 0


def read_epochs(text: str) -> str:
    """Return durations in epochs, joined by commas.

    Raises ArgumentTypeError if a duration is not a number.
    """
    try:
        return ",".join(f"{float(part):g}" for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of epochs such as 4,8") from None


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    """Read the command line: options, and settings for every run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--epochs", type=read_epochs, help="in epochs; 4,8 to train")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--recipes", default="tiny_baseline,tiny_mild")
    parser.add_argument("--root", type=Path, default=Path("runs/proof"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", type=Path, nargs="+", metavar="RUNS", help="folders, CSVs")
    parser.add_argument("--against", nargs="+", default=[], metavar="A@EPOCHS:B@EPOCHS")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--minutes", type=Path, help="CSV of recipe, epochs and minutes")
    parser.add_argument("--csv", type=Path, help="one row for each run")
    parser.add_argument("--png", type=Path, help="picture of accuracy against cost")
    arguments, settings = parser.parse_known_args()
    if (arguments.data is None) == (arguments.table is None):
        parser.error("give a folder of images, or --table with a folder of runs")
    if arguments.minutes and not arguments.png:
        parser.error("--minutes is for the picture: add --png FILE")
    if unknown := [each for each in settings if "=" not in each and not each.startswith("~")]:
        parser.error(f"unknown: {' '.join(unknown)}")
    return arguments, settings


def train(arguments: argparse.Namespace, settings: list[str]) -> None:
    """Train every combination that is not finished.

    Ends the program if a run fails or is stopped.
    """
    if arguments.quick:
        arguments.data = demo.write(arguments.root / "images", train_images=8, val_images=2)
        arguments.epochs, arguments.seeds = "1,2", "1,2"
        settings = [*settings, "bs=16", "batch.bn_size=16"]
    sweep = [
        f"seed={arguments.seeds}",
        f"epochs={arguments.epochs or '4,8'}",
        f"recipe={arguments.recipes}",
        f"data={arguments.data}",
        f"run.root={arguments.root}",
        *settings,
    ]
    command = [sys.executable, "-m", "resnet_recipes", "-m", *sweep, "--recipes", RECIPES]
    if code := subprocess.run(command).returncode:
        sys.exit(code)


def list_pairs(cells: list[Cell], arguments: argparse.Namespace) -> list[tuple[Cell, Cell]]:
    """Return the pairs of cells to compare, at the requested durations, if any.

    Pairs with an untrained cell are skipped.
    """
    durations = set(map(float, arguments.epochs.split(","))) if arguments.epochs else None
    chosen = [cell for cell in cells if durations is None or cell.epochs in durations]
    by_label = {format_label(cell): cell for cell in cells}
    requested = [tuple(map(by_label.get, pair.split(":"))) for pair in arguments.against]
    return [*pair_neighbors(chosen, arguments.recipes.split(",")), *filter(all, requested)]


def format_accuracies(cells: list[Cell]) -> Table:
    """Return the table of all seeds."""
    table = Table("recipe", "epochs", "PFLOPs", "minutes", "top-1 by seed, %", "mean, %")
    for cell in cells:
        seeds = ", ".join(f"{seed}: {top1:.1f}" for seed, top1 in sorted(cell.top1.items()))
        cost = "-" if cell.pflops is None else f"{cell.pflops:.3g}"
        minutes = "-" if cell.minutes is None else f"{cell.minutes:.1f}"
        table.add_row(cell.name, f"{cell.epochs:g}", cost, minutes, seeds, f"{cell.mean:.2f}")
    return table


def format_intervals(differences: list[Difference]) -> Table:
    """Return the table of differences; their intervals hold simultaneously."""
    title = f"intervals hold together with {CONFIDENCE:.0%}, p by Holm; cost is a ratio of PFLOPs"
    table = Table("difference", "by seed, points", "mean", "interval", "p", "cost", "", title=title)
    for one in differences:
        interval = "one seed"
        if one.half_width is not None:
            interval = f"{one.mean - one.half_width:+.2f} to {one.mean + one.half_width:+.2f}"
        table.add_row(
            f"{one.first} - {one.second}",
            ", ".join(f"{points:+.1f}" for points in one.points),
            f"{one.mean:+.2f}",
            interval,
            "-" if one.p is None else f"{one.p:.2g}",
            "-" if one.cost is None else f"{one.cost:.2f}",
            one.result,
        )
    return table


def draw_figures(cells: list[Cell], arguments: argparse.Namespace) -> list[Figure]:
    """Return the plots of accuracy against PFLOPs and, if they were measured, minutes."""
    name = arguments.png.stem
    recipes = arguments.recipes.split(",")
    plots = [draw_figure(name, cells, recipes, ("pflops", "training PFLOPs"))]
    if arguments.minutes:
        timed = read_measured_cells(cells, arguments.minutes)
        plots.append(draw_figure(f"{name}-minutes", timed, recipes, ("minutes", "minutes")))
    return plots


def draw_figure(
    name: str, cells: list[Cell], recipes: Sequence[str], cost: tuple[str, str]
) -> Figure:
    """Return a plot of accuracy against cost, with bars from the lowest to the highest seed."""
    field, title = cost
    rows = [
        {
            "series": cell.name.removeprefix("tiny_"),
            field: getattr(cell, field),
            "top1_percent": cell.mean,
            "low": min(cell.top1.values()),
            "high": max(cell.top1.values()),
        }
        for name in recipes
        for cell in cells
        if cell.name == name and getattr(cell, field)
    ]
    plot = plot_accuracy(rows, field, title)
    plot["layer"] = plot["layer"][1:]  # the first layer is the Pareto front
    return Figure(name, "", plot)


if __name__ == "__main__":
    sys.exit(main())
