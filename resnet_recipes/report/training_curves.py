"""The report section on training: curves over the epochs, and the time of each phase."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from resnet_recipes.base.reading import read_json
from resnet_recipes.report.page import charts
from resnet_recipes.report.page.html import Figure, PageSection
from resnet_recipes.run_folder import METRICS, SUMMARY
from resnet_recipes.run_folder.metrics import Record, filter_kind, get_top1, read_metrics
from resnet_recipes.run_folder.runs import RunRecord

#: Maximum runs in a plot: more lines cannot be distinguished.
MAX_RUNS = 10

#: Maximum points per line: a screen cannot show more.
MAX_POINTS = 200

QUANTITIES = {
    "top1_percent": "top-1 accuracy (%)",
    "loss": "training loss",
    "lr": "learning rate",
    "pixels": "image size (px)",
    "images_per_second": "images/s",
    "data_wait_share": "fraction of time waiting for data",
}


def make_section(runs: Mapping[str, RunRecord], mark: str) -> PageSection:
    """Return the section on labeled runs; `mark` is the prefix of its figures' names."""
    best = sorted(runs, key=lambda name: -(runs[name].top1_percent or 0.0))
    chosen = {name: runs[name] for name in best[:MAX_RUNS]}
    points = [
        point | {"name": name} for name, run in chosen.items() for point in _read_points(run.folder)
    ]
    figures = [
        Figure(
            f"{mark}course-{key}",
            f"{title[0].upper()}{title[1:]} over the epochs.",
            charts.plot_curve(points, key, title),
        )
        for key, title in QUANTITIES.items()
        if len({point["epoch"] for point in points if point.get(key) is not None}) > 1
    ]
    bars = [row | {"name": name} for name, run in chosen.items() for row in _list_phases(run)]
    if bars:
        caption = "Where the time went, in total."
        figures.append(
            Figure(f"{mark}phases", caption, charts.plot_phases(bars), has_own_legend=True)
        )
    note = f"Only the {MAX_RUNS} most accurate of {len(runs)} runs are shown."
    text = [note] if len(runs) > MAX_RUNS else []
    names = sorted({point["name"] for point in points})
    return PageSection("During the runs", text, legend=names, figures=figures)


def _read_points(folder: Path) -> list[dict[str, Any]]:
    """Return the downsampled log of a run: the epoch, and values of QUANTITIES."""
    records = read_metrics(folder / METRICS)
    accuracies = [
        {"epoch": record["epoch"], "top1_percent": top1}
        for record in filter_kind(records, "evaluation")
        if (top1 := get_top1(record)) is not None
    ]
    return [*_downsample(filter_kind(records, "step")), *accuracies]


def _downsample(steps: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yield at most MAX_POINTS rows: the mean of each quantity over equally many logged steps."""
    size = -(-len(steps) // MAX_POINTS) or 1
    for start in range(0, len(steps), size):
        part = steps[start : start + size]
        row: dict[str, Any] = {"epoch": part[-1]["epoch"]}
        for key in QUANTITIES:
            items = (record.get(key) for record in part)
            values = [value for value in items if isinstance(value, int | float)]
            row[key] = sum(values) / len(values) if values else None
        yield row


def _list_phases(run: RunRecord) -> Iterator[dict[str, Any]]:
    summary = read_json(run.folder / SUMMARY, may_be_absent=True)
    try:
        parts = {
            name: float(summary[f"{key}_seconds"]) / 60
            for name, key in (
                ("training", "training"),
                ("waiting for data", "training"),
                ("evaluation", "evaluation"),
                ("checkpoints", "checkpoint"),
                ("start-up", "startup"),
            )
        }
        parts["waiting for data"] *= float(summary["data_wait_share"])
    except (ValueError, KeyError, TypeError):
        return
    parts["training"] -= parts["waiting for data"]
    for rank, (phase, minutes) in enumerate(parts.items()):
        yield {"phase": phase, "minutes": minutes, "rank": rank}
