"""The head of the report: what runs were trained on, which is the best, and which are the front."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from resnet_recipes.base.reading import read_json
from resnet_recipes.base.text import clock_time
from resnet_recipes.report.comparison import settings
from resnet_recipes.report.page import charts
from resnet_recipes.report.page.html import Legend, Limit, Section, Table
from resnet_recipes.run_folder.names import DATA
from resnet_recipes.run_folder.runs import RunRecord, shared_changes

#: Rows of the front that are shown: the table of all runs has the others.
MOST = 8


def headline(
    runs: Sequence[RunRecord], finished: Sequence[dict[str, Any]], price: float | None
) -> Section:
    """Return the section that answers first; `finished` are the rows of finished runs."""
    front = list(charts.pareto(finished, "minutes"))
    text = [_count(runs), *_data(runs)]
    if shared := shared_changes(runs):
        text.append(f"All of them have {'  '.join(shared)}")
    if front:
        best = front[-1]
        cost = "" if price is None else f", ${best['cost']:,.2f}"
        text.append(
            f"Best: {best['name']}, {best['top1_percent']:.2f} % top-1 in "
            f"{clock_time(60 * best['minutes'])} of training{cost}."
        )
    limits = [Limit("minutes", "minutes of training", front)]
    if price is not None:
        limits.append(Limit("cost", "dollars", list(charts.pareto(finished, "cost"))))
    recipes = sorted({row["recipe"] for row in finished})
    return Section(
        "In short",
        text,
        limits * (len(front) > 1),
        Legend("recipe", recipes) if len(recipes) > 1 else None,
        tables=[_front(front, price)] * (len(front) > 1),
    )


def _count(runs: Sequence[RunRecord]) -> str:
    states = Counter(run.state for run in runs)
    return ", ".join(f"{count} {state}" for state, count in states.most_common()) + "."


def _data(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield a sentence for each data set."""
    seen: dict[str, None] = {}  # in order, each once
    for run in runs:
        if run.state == "unreadable":
            continue
        found = read_json(run.folder / DATA, may_be_absent=True)
        root = PurePath(settings(run.folder).get("data.root", "")).name
        counts = [
            f"{number:,} {noun}"
            for number, noun in (
                (found.get("train_examples"), "images to train on"),
                (found.get("eval_examples"), "to evaluate"),
                (len(found.get("classes") or ()), "classes"),
            )
            if isinstance(number, int) and number
        ]
        seen[f"Data: {root + ': ' if root else ''}{', '.join(counts)}."] = None
    yield from seen
    if len(seen) > 1:
        yield "Accuracies on different images cannot be compared: give one data set's runs alone."


def _front(front: Sequence[dict[str, Any]], price: float | None) -> Table:
    """Return the table of the runs that no other run beats in both time and accuracy."""
    keys = ["name", "recipe", "epochs", "top1_percent", "minutes"]
    headings = ["run", "recipe", "epochs", "top-1 (%)", "training (min)"]
    if price is not None:
        keys, headings = [*keys, "cost"], [*headings, "cost ($)"]
    rows = [[row[key] for key in keys] for row in front[-MOST:]]
    return Table("The front: no other run is more accurate in less time.", headings, rows)
