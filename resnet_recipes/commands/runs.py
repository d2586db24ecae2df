"""`resnet-recipes runs [ROOT]`: list runs with state, progress, accuracy, time and cost."""

import json
import textwrap
from collections.abc import Callable

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.commands.arguments import WIDTH, Arguments
from resnet_recipes.commands.places import records
from resnet_recipes.measure.runs import STATES, RunRecord
from resnet_recipes.report.text import clock_time, csv_line, pflops, printable

#: What the list can be sorted by; the best, or the latest name, comes first.
KEYS: dict[str, Callable[[RunRecord], object]] = {
    "name": lambda run: run.name,
    "top1": lambda run: -(run.top1_percent or 0.0),
    "minutes": lambda run: float("inf") if run.minutes is None else run.minutes,
    "epochs": lambda run: run.epochs or 0.0,
    "recipe": lambda run: (run.recipe, run.epochs or 0.0, run.name),
    "state": lambda run: (run.state, run.name),
}


def run(arguments: Arguments) -> int:
    """Print the runs below a folder (default: runs), filtered by words like state=failed."""
    filters = [word.partition("=")[::2] for word in arguments.words if "=" in word]
    places = [word for word in arguments.words if "=" not in word] or ["runs"]
    order, price = arguments.flags.get("--sort", "name"), price_of(arguments.flags.get("--price"))
    problems = (
        [Problem("--sort", order, f"must be one of {', '.join(KEYS)}")] if order not in KEYS else []
    )
    problems += [
        Problem(key, value, "unknown filter", "filters: recipe=NAME state=STATE name=TEXT")
        for key, value in filters
        if key not in ("recipe", "state", "name")
    ]
    problems += [
        Problem(key, value, f"must be one of {', '.join(STATES)}")
        for key, value in filters
        if key == "state" and value not in STATES
    ]
    if problems:
        raise RecipeError(problems)
    found = [run for run in records(places) if all(_matches(run, *words) for words in filters)]
    found.sort(key=KEYS[order])
    if "--json" in arguments:
        print(json.dumps([_row(run, price) for run in found], indent=2))
    elif "--csv" in arguments:
        _write_csv([_row(run, price) for run in found])
    elif found:
        _show(found, price)
    else:
        print("no runs" + (" match" if filters else f" in {', '.join(places)}"))
    return 0


def price_of(text: str | None) -> float | None:
    """Return a price per hour from text like 32.77 or 32.77/h; None if none was given.

    Raises RecipeError.
    """
    if text is None:
        return None
    try:
        price = float(text.removesuffix("/h").lstrip("$"))
    except ValueError:
        price = -1.0
    if not 0 <= price < 1e6:
        raise RecipeError(
            [Problem("--price", text, "must be a price per hour, as in 32.77 or 32.77/h")]
        )
    return price


def _clock(minutes: float | None) -> str:
    return "-" if minutes is None else clock_time(60 * minutes)


def _matches(run: RunRecord, key: str, value: str) -> bool:
    return value in run.name if key == "name" else getattr(run, key) == value


def _row(run: RunRecord, price: float | None) -> dict[str, object]:
    return run.as_dict() | ({} if price is None else {"cost": run.cost(price)})


def _write_csv(rows: list[dict[str, object]]) -> None:
    if rows:
        print(csv_line(rows[0]), end="")
    for row in rows:
        print(csv_line((row | {"changes": " ".join(row["changes"])}).values()), end="")


def _show(runs: list[RunRecord], price: float | None) -> None:
    """Print a table.

    Changes to the recipe are printed below the name, and so is everything else if names are long.
    """
    recipe = max(6, *(len(printable(run.recipe)) for run in runs))
    head = f"{'RECIPE':<{recipe}} {'STATE':<9} {'EPOCHS':>9} {'TOP-1':>7} {'PFLOPS':>8}"
    head += f" {'TIME':>8} {'MLPERF':>8}"
    head += f" {'COST':>8}" if price is not None else ""
    longest = max(4, *(len(printable(run.name)) for run in runs))
    width = longest if longest + 2 + len(head) <= WIDTH else 0
    print(f"{'NAME':<{width}}  {head}" if width else f"NAME\n  {head}")
    for run in runs:
        total = "?" if run.epochs is None else f"{run.epochs:.4g}"
        epochs = total if run.state == "finished" else f"{run.epochs_done:.3g}/{total}"
        top1 = "-" if run.top1_percent is None else f"{run.top1_percent:.2f} %"
        papers, mlperf = (
            _clock(minutes) for minutes in (run.minutes_papers or run.minutes, run.minutes_mlperf)
        )
        operations = "-" if run.pflops is None else pflops(run.pflops)
        cost = (
            ""
            if price is None
            else f" {run.cost(price):>8.2f}"
            if run.wall_minutes is not None
            else f" {'-':>8}"
        )
        name = f"{printable(run.name):<{width}}  " if width else f"{printable(run.name)}\n  "
        row = (
            f"{printable(run.recipe):<{recipe}} {run.state:<9} {epochs:>9} {top1:>7} "
            f"{operations:>8} {papers:>8} {mlperf:>8}{cost}"
        )
        print(f"{name}{row}".rstrip())
        if changes := run.changes_besides_name:
            print(
                textwrap.fill(
                    printable("  ".join(changes)),
                    WIDTH,
                    initial_indent="    ",
                    subsequent_indent="    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
        if run.reason:
            print(f"    {printable(run.reason.splitlines()[0])}")
        if run.resumable:
            print(f"    resume: resnet-train --resume {printable(run.folder)}")
