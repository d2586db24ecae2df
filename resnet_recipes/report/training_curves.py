"""The report section on training: curves over the epochs, and the time of each phase."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from resnet_recipes.report.page import charts
from resnet_recipes.report.page.html import Figure, PageSection
from resnet_recipes.report.paired_difference import compute_accuracy_interval
from resnet_recipes.run_folder import METRICS
from resnet_recipes.run_folder.metrics import Record, filter_kind, get_top1, read_metrics
from resnet_recipes.run_folder.runs import RunRecord
from resnet_recipes.run_folder.summary import compute_data_wait, time_evaluations

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
    "data_wait_share": "data wait, fraction of the time",
}


def make_section(runs: Mapping[str, RunRecord], prefix: str) -> PageSection:
    """Return the section on labeled runs; the names of its figures start with `prefix`."""
    best = sorted(runs, key=lambda name: -(runs[name].top1_percent or 0.0))
    best_runs = {name: runs[name] for name in best[:MAX_RUNS]}
    points = [
        point | {"name": name}
        for name, run in best_runs.items()
        for point in _read_points(run.folder)
    ]
    figures = [
        Figure(
            f"{prefix}course-{key}",
            "The bands are 95% intervals." if key == "top1_percent" else "",
            charts.plot_curve(points, key, title),
        )
        for key, title in QUANTITIES.items()
        if _is_worth_plotting(points, key)
    ]
    bars = [row | {"name": name} for name, run in best_runs.items() for row in _iterate_phases(run)]
    if bars:
        caption = (
            "The parts of the total time. Other: writing the weights at the end, and work that a "
            "stop discards."
        )
        figures.append(
            Figure(f"{prefix}phases", caption, charts.plot_phases(bars), has_own_legend=True)
        )
    note = f"Only the {MAX_RUNS} most accurate of {len(runs)} runs are shown."
    text = [note] if len(runs) > MAX_RUNS else []
    names = sorted({point["name"] for point in points}) if len(best_runs) > 1 else ()
    return PageSection("During the runs", text, legend=names, figures=figures)


def _is_worth_plotting(points: Sequence[dict[str, Any]], key: str) -> bool:
    """Return whether a quantity has several epochs and, except for accuracy, several values."""
    known_points = [point for point in points if point.get(key) is not None]
    fields = ("epoch",) if key == "top1_percent" else ("epoch", key)
    return all(len({point[field] for point in known_points}) > 1 for field in fields)


def _read_points(folder: Path) -> list[dict[str, Any]]:
    """Return the downsampled log of a run: the epoch, and values of QUANTITIES."""
    records = read_metrics(folder / METRICS)
    accuracies = [
        {"epoch": record["epoch"], "top1_percent": top1, **_find_interval(top1, record["examples"])}
        for record in filter_kind(records, "evaluation")
        if (top1 := get_top1(record)) is not None
    ]
    return [*_downsample(filter_kind(records, "step")), *accuracies]


def _find_interval(top1: float, images: int) -> dict[str, float]:
    if not images:
        return {}
    return compute_accuracy_interval(round(top1 * images / 100), images)._asdict()


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


def _iterate_phases(run: RunRecord) -> Iterator[dict[str, Any]]:
    """Yield the minutes of each part of a run, which add up to its wall time."""
    records = read_metrics(run.folder / METRICS)
    steps = filter_kind(records, "step")
    begins = filter_kind(records, "begin")
    if not steps:
        return
    training_seconds = steps[-1]["training_seconds"]
    wait_fraction = compute_data_wait(records)
    parts = {
        "training": training_seconds * (1 - wait_fraction),
        "data wait": training_seconds * wait_fraction,
        "evaluation": sum(time_evaluations(records)),
        "checkpoints": sum(record["seconds"] for record in filter_kind(records, "saved")),
    }
    rest = max(0.0, records[-1]["wall_seconds"] - sum(parts.values()))
    # startup is at most the rest, since older runs counted the loading of weights as training too
    parts["startup"] = min(rest, sum(record["startup_seconds"] for record in begins))
    parts["other"] = rest - parts["startup"]
    for rank, (phase, seconds) in enumerate(parts.items()):
        yield {"phase": phase, "minutes": seconds / 60, "rank": rank}
