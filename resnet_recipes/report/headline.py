"""The head of a data set's part of the report: what was trained, and which runs are the best."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from resnet_recipes.base.reading import read_json
from resnet_recipes.base.text import clock_time
from resnet_recipes.report.comparison import settings
from resnet_recipes.report.page import charts
from resnet_recipes.report.page.html import Section, Table
from resnet_recipes.run_folder import DATA
from resnet_recipes.run_folder.runs import RunRecord, shared_changes

#: Rows of the front that are shown: the table of all runs has the others.
MOST = 8


def data_of(run: RunRecord) -> tuple[str, str]:
    """Return the name of a run's data set, and what is in it."""
    found = read_json(run.folder / DATA, may_be_absent=True)
    counts = (
        (found.get("train_examples"), "images to train on"),
        (found.get("eval_examples"), "to evaluate"),
        (len(found.get("classes") or ()), "classes"),
    )
    said = [f"{n:,} {noun}" for n, noun in counts if isinstance(n, int) and n]
    return PurePath(settings(run.folder).get("data.root", "")).name, ", ".join(said)


def headline(
    runs: Sequence[RunRecord], rows: Sequence[dict[str, Any]], price: float | None
) -> Section:
    """Return the section that answers first; `rows` are of the finished runs, seeds together."""
    name, content = data_of(runs[0])
    front = list(charts.pareto(rows, "minutes"))
    tables = [_front(front, price)] if len(front) > 1 else []
    text = [*_best(front, price), *_facts(runs, content)]
    return Section(name or "Runs", text, tables=tables)


def _facts(runs: Sequence[RunRecord], content: str) -> Iterator[str]:
    yield f"Data: {content}." if content else "The data are unknown."
    states = Counter(run.state for run in runs)
    yield ", ".join(f"{count} {state}" for state, count in states.most_common()) + "."
    recipes = {f"recipe={run.recipe}" for run in runs}
    if shared := [*(recipes if len(recipes) == 1 else ()), *shared_changes(runs)]:
        yield f"{'All have' if len(runs) > 1 else 'Settings:'} {'  '.join(shared)}"
    if len(runs) == 1 and runs[0].resumable:
        yield f"Next: resnet-train --resume {shlex.quote(str(runs[0].folder))}"
    elif len(runs) == 1 and runs[0].state == "finished":
        yield f"Next: resnet-recipes predict {shlex.quote(str(runs[0].folder))} IMAGES"


def _best(front: Sequence[dict[str, Any]], price: float | None) -> Iterator[str]:
    if not front:
        return
    best = front[-1]
    cost = "" if price is None else f", ${best['cost']:,.2f}"
    seeds = f" (mean of {best['seeds']} runs)" if best["seeds"] > 1 else ""
    yield (
        f"Best: {best['name']}, {best['top1_percent']:.2f} % top-1{seeds} in "
        f"{clock_time(60 * best['minutes'])} of training{cost}."
    )


def _front(front: Sequence[dict[str, Any]], price: float | None) -> Table:
    """Return the table of the runs that no other run beats in both time and accuracy."""
    columns = {"name": "settings", "epochs": "epochs", "top1_percent": "top-1 (%)"}
    columns |= {"minutes": "training (min)"} | ({} if price is None else {"cost": "cost ($)"})
    caption = "The front: nothing else is more accurate in less time."
    return Table(caption, columns, front[-MOST:])
