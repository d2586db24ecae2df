"""`resnet-recipes runs [RUN|FOLDER]`: list runs with state, progress, accuracy, time and cost."""

import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import starmap
from pathlib import Path
from statistics import fmean
from typing import Any

from resnet_recipes.base.error_collector import ErrorCollector, collect
from resnet_recipes.base.errors import (
    Command,
    ExitCode,
    Hint,
    Kind,
    NotReadyError,
    Problem,
    RecipeError,
    format_advice,
)
from resnet_recipes.base.money import clean_price, format_amount
from resnet_recipes.base.paths import EMPTY_CLAUSE
from resnet_recipes.base.suggestions import (
    FOREIGN_COMMANDS,
    find_closest,
    guess_flag_value,
)
from resnet_recipes.base.text import (
    escape_controls,
    format_epochs,
    format_minutes,
    format_number,
    wrap_text,
)
from resnet_recipes.command_line.arguments import Arguments, drop_arguments
from resnet_recipes.command_line.printing import format_or_dash, format_table, get_width, show
from resnet_recipes.command_line.run_arguments import list_records
from resnet_recipes.command_line.usage import CSV, JSON, Scope, Usage
from resnet_recipes.jobs.lookup import LIST, ROOT, find_run
from resnet_recipes.report.comparison import require_run
from resnet_recipes.run_folder.ending import format_resume
from resnet_recipes.run_folder.lock import LockedFolder
from resnet_recipes.run_folder.runs import (
    STATES,
    RunRecord,
    find_shared_changes,
    iterate_newest_runs,
)

USAGE = Usage(
    "resnet-recipes runs [rm] [RUN|FOLDER ...] [recipe=NAME] [state=STATE] [name=TEXT]",
    "list runs with state, accuracy, time and cost, or delete them",
    "resnet-recipes runs --sort top1 recipe=mild",
    {
        "--sort KEY": "sort by name, top1, minutes, epochs, recipe or state",
        "--price PER_HOUR": "print the cost of the wall time of each run (default launch.price)",
        "--yes": "with rm: delete without asking",
    }
    | JSON
    | CSV,
    settings=Scope.OPTIONS,
    more="""\
The default FOLDER is ./runs. STATE is finished, running, stopped, failed, killed,
prepared (not started yet) or unreadable; TEXT is a part of the name. PFLOPs and
TRAINING exclude evaluations; `compare` and --json include the other times.

`resnet-recipes runs rm RUN ...` deletes runs.""",
)

#: Ascending sort keys of the list; with top1, the best run comes first.
KEYS: dict[str, Callable[[RunRecord], Any]] = {
    "name": lambda run: run.name,
    "top1": lambda run: -(run.top1_percent or 0.0),
    "minutes": lambda run: run.minutes or float("inf"),
    "epochs": lambda run: run.epochs or 0.0,
    "recipe": lambda run: (run.recipe, run.epochs or 0.0),
    "state": lambda run: run.state,
}

#: Words that mean to delete runs.
_REMOVAL = [name for name, ours in FOREIGN_COMMANDS.items() if ours.text == "runs rm"]

#: Columns that a narrow terminal omits, in this order.
_OPTIONAL_COLUMNS = ("PFLOPs", "WALL TIME", "COST", "RECIPE", "TRAINING", "EPOCHS")


def check(arguments: Arguments) -> tuple[list[Path], list[RunRecord], float | None]:
    """Return the runs to delete, or else the runs in the folders and the price per hour.

    Raises RecipeError if a filter or a flag is wrong, or if a folder does not exist.
    """
    first, *rest = arguments.positional or [""]
    if first != "rm" and first in _REMOVAL and rest:
        removal = Command.of("resnet-recipes", "runs", "rm", *rest)
        raise RecipeError.of(first, None, "unknown command", removal, Kind.UNKNOWN)
    filters, sources = _split_filters_and_runs(arguments.positional)
    removed = list[Path]()
    runs = list[RunRecord]()
    errors = ErrorCollector()
    order = arguments.flags.get("--sort", "name")
    with errors:
        RecipeError.raise_if_any(starmap(_check_filter, filters))
        if first == "rm" and filters:
            fix = Command.of("resnet-recipes", "runs", *map("=".join, filters))
            raise RecipeError.of("COMMAND", "rm", "deletes runs by name, without filters", fix)
    with errors:
        if order not in KEYS:
            key = guess_flag_value("--sort", order, KEYS)
            raise RecipeError([Problem("--sort", order, "", key, tuple(KEYS))])
    with errors:
        price = read_price(arguments.flags.get("--price"))
    with errors:
        if first == "rm":
            removed = _find_removed(sources)
        elif sources or any(iterate_newest_runs(ROOT)):
            runs = list_records(sources or [str(ROOT)])
    errors.raise_if_any()
    return removed, runs, price


def run(
    arguments: Arguments, removed: list[Path], every: list[RunRecord], price: float | None
) -> int:
    """Print the runs in a folder (default: runs), with filters such as state=failed."""
    if removed:
        return _remove(removed, "--yes" in arguments)
    filters, sources = _split_filters_and_runs(arguments.positional)
    order = arguments.flags.get("--sort", "name")
    runs = [
        run
        for run in every
        if all(
            value in run.name if key == "name" else value == getattr(run, key)
            for key, value in filters
        )
    ]
    runs.sort(key=KEYS[order])
    rows = [run.as_dict() | {"cost": run.cost(price)} for run in runs]
    where = f"no runs in {', '.join(sources or [f'./{ROOT}'])}"
    unmatched = f"{where} match {' '.join(map('='.join, filters))}"
    none = [unmatched] if filters else [where, format_advice(Command("resnet-train demo"))]
    lines = format_runs(runs, price) if runs else none
    show(arguments, rows, lines, [row | {"changes": " ".join(row["changes"])} for row in rows])
    return 0


def _split_filters_and_runs(positional: Sequence[str]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the filters, as keys and values, and the runs or folders."""
    filters = [tuple(argument.split("=", 1)) for argument in positional if "=" in argument]
    return filters, [argument for argument in positional if "=" not in argument]


def _remove(folders: Sequence[Path], is_confirmed: bool) -> int:
    """Delete runs after confirmation. Raises RecipeError, before deleting any, if one runs."""
    if not is_confirmed and not sys.stdin.isatty():
        clause = "needs confirmation, but stdin is not a terminal"
        raise RecipeError.of("COMMAND", "rm", clause, "--yes")
    names = ", ".join(folder.name for folder in folders)
    with ExitStack() as locks:
        for folder in folders:
            locks.enter_context(LockedFolder(folder, must_end=True))
        if not is_confirmed:
            print(f"Delete {names} with all checkpoints? [y/N] ", end="", flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                print("nothing was deleted")
                return ExitCode.DONE
        for folder in folders:
            shutil.rmtree(folder)
    print(f"deleted {names}")
    return 0


def _find_removed(arguments: Sequence[str]) -> list[Path]:
    """Return the runs to delete, which follow `rm`. Raises RecipeError if some are not runs."""
    if len(arguments) < 2:
        raise RecipeError.of("COMMAND", "rm", "needs the runs to delete", LIST)

    def find(argument: str) -> list[Path]:
        folder = require_run(find_run(argument)).folder
        if folder.is_symlink():
            raise NotReadyError.at(folder, "is a link, not a run folder", LIST)
        return [folder.resolve()]

    return list(dict.fromkeys(collect(find, arguments[1:])))


def read_price(text: str | None) -> float | None:
    """Parse a price per hour such as 32.77, $32.77 or 32.77/h; None without a price.

    Raises RecipeError if the text is not a price.
    """
    if text is None:
        return None
    try:
        price = float(clean_price(text))
    except ValueError:
        price = -1.0
    if not 0 <= price < 1e6:
        raise RecipeError.of("--price", text, "must be a price per hour", Hint("--price PER_HOUR"))
    return price


def _check_filter(key: str, value: str) -> Problem | None:
    if key in ("sort", "price", "csv"):
        return Problem(key, value, "is a flag", f"--{key} {shlex.quote(value)}")
    if key in _REMOVAL and value:
        fix = Command.of("resnet-recipes", "runs", "rm", value)
        return Problem(key, value, "unknown filter", fix, kind=Kind.UNKNOWN)
    filters = {"recipe": "NAME", "state": "STATE", "name": "TEXT"}
    if key not in filters:
        near = find_closest(key, filters)
        meant = f"{near}={value}" if near and value else ""
        valid = tuple(map("=".join, filters.items()))
        return Problem(key, value, "unknown filter", meant, valid, Kind.UNKNOWN)
    if not value:
        return Problem(key, value, EMPTY_CLAUSE)
    if key == "state" and value not in STATES:
        return Problem(key, value, "", guess_flag_value(key, value, STATES), STATES)
    return None


def format_runs(runs: Sequence[RunRecord], price: float | None = None) -> Iterator[str]:
    """Yield the changes that all runs share, and a table with the other changes below each run."""
    shared = find_shared_changes(runs) if len(runs) > 1 else ()
    if shared:
        yield from wrap_text(f"all runs: {'  '.join(shared)}", get_width(), rest="    ")
        yield ""
    rows = [_make_cells(run, price) for run in runs]
    if price is None and all(run.price_per_hour is None for run in runs):
        for row in rows:
            del row["WALL TIME"], row["COST"]
    head, *lines = _format_run_table(rows)
    yield head
    for run, line in zip(runs, lines, strict=True):
        yield line
        texts = ["  ".join(change for change in run.shown_changes if change not in shared)]
        if run.extends:
            texts.append(f"extends: {escape_controls(run.extends)}")
        if run.better_raw:
            texts.append(f"the raw weights reach {run.better_raw:.2f}%, more than EMA")
        if run.has_best_weights and run.best_top1_percent is not None:
            best = f"{run.best_top1_percent:.2f}% at epoch {run.best_epoch or 0:.4g}"
            texts.append(f"best evaluation: {best} (optimistic); weights-best.safetensors")
        if run.reason:
            texts.append(f"reason: {run.shown_reason}")
        for text in filter(None, texts):
            yield from wrap_text(text, get_width(), "    ", "    ")
        if run.resumable:
            name = run.name if run.folder.parent == ROOT else run.folder
            yield f"    resume: {escape_controls(format_resume(name, run.resume_settings))}"


def rank_settings(runs: Sequence[RunRecord], changes: dict[str, list[str]]) -> Iterator[str]:
    """Yield a table of the settings by mean top-1 over seeds; compare the best two settings."""
    results = defaultdict[str, dict[str, float]](dict)
    for run in runs:
        settings = drop_arguments(changes[run.name], "seed", "data.fold")
        if run.state == "finished" and run.top1_percent is not None:
            results[" ".join(settings) or run.recipe][str(run.folder)] = run.top1_percent
    means = sorted(((fmean(top1.values()), name) for name, top1 in results.items()), reverse=True)
    rows = [
        {"SETTINGS": name, "RUNS": f"{len(results[name])}", "MEAN TOP-1": f"{mean:.2f}%"}
        for mean, name in means
    ]
    folders = [folder for _, name in means[:2] for folder in results[name]]
    if len(folders) > 1:
        compare = Command.of("resnet-recipes", "compare", *folders)
        yield from ("", *format_table(rows), format_advice(compare))


def _format_run_table(rows: list[dict[str, str]]) -> list[str]:
    """Return the lines of a table; a name that is too long gets a separate line."""
    names = ["NAME", *(row.pop("NAME") for row in rows)]
    lines = format_table(rows, _OPTIONAL_COLUMNS, get_width() - 2)
    available = get_width() - 2 - max(map(len, lines))
    width = max((len(name) for name in names if len(name) <= available), default=0)
    starts = [
        f"{name:{width}}" if len(name) <= width else f"{name}\n{'':{width}}" for name in names
    ]
    return [f"{start}  {line}" for start, line in zip(starts, lines, strict=True)]


def _make_cells(run: RunRecord, price: float | None) -> dict[str, str]:
    return {
        "NAME": escape_controls(run.name),
        "RECIPE": escape_controls(run.recipe),
        "STATE": run.state,
        "EPOCHS": format_run_epochs(run),
        "TOP-1": format_run_top1(run),
        "PFLOPs": format_or_dash(run.pflops, format_number),
        "TRAINING": format_or_dash(run.minutes, format_minutes),
        "WALL TIME": format_or_dash(run.wall_minutes, format_minutes),
        "COST": format_or_dash(run.cost(price), format_amount),
    }


def format_run_epochs(run: RunRecord) -> str:
    """Return the epochs of a run: 2, or 0.63/2 if it is not finished."""
    total = format_or_dash(run.epochs, format_epochs)
    if run.state in ("finished", "unreadable"):
        return total
    return f"{format_epochs(run.epochs_done)}/{total}"


def format_run_top1(run: RunRecord) -> str:
    """Return the accuracy of a run, with its epoch unless it is the last one."""
    top1 = format_or_dash(run.top1_percent, "{:.2f}%".format)
    epoch = run.top1_epoch
    return f"{top1} at ep {format_epochs(epoch)}" if epoch and epoch < run.epochs_done else top1
