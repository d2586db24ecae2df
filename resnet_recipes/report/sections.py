"""The sections of the report: runs by dataset, and published results."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from statistics import mean
from typing import Any

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.money import format_amount, format_price
from resnet_recipes.base.reading import read_bytes, read_json
from resnet_recipes.base.text import format_clock, format_minutes
from resnet_recipes.planning.published_results import IMAGENET_IMAGES, list_published_results
from resnet_recipes.report.comparison import (
    SeedGroup,
    group_seeds,
    label_runs,
    make_labels,
    read_settings,
)
from resnet_recipes.report.learning_curve import describe_learning_curves
from resnet_recipes.report.page import charts
from resnet_recipes.report.page.html import Figure, PageSection, Table
from resnet_recipes.report.paired_difference import (
    PairedDifference,
    compute_accuracy_interval,
    describe_pair,
)
from resnet_recipes.report.training_curves import make_section
from resnet_recipes.run_folder import COMMAND, CORRECT_IMAGES, METRICS, SUMMARY
from resnet_recipes.run_folder.correct_images import CorrectImages
from resnet_recipes.run_folder.metrics import read_metrics
from resnet_recipes.run_folder.runs import RunRecord, find_shared_changes, read_image_facts

#: The machine of most published results.
USUAL_HARDWARE = "8x A100"

#: How the tables of runs print numbers, by column.
_FORMATS = {"minutes": format_minutes, "wall_minutes": format_minutes, "cost": format_amount}

#: Maximum unfinished runs in the headline.
MAX_RESUMABLE = 4

#: Dollars per hour of a p4d.24xlarge (8 A100) on demand: 27 min cost 14.77 dollars in the Composer
#: tutorial for AWS.
P4D_DOLLARS_PER_HOUR = 32.8


def build_sections(runs: Sequence[RunRecord], price: float | None) -> Iterator[PageSection]:
    """Yield the sections of a report on `runs`, which may be empty, by dataset.

    With `price` per hour, the sections include costs; the default is the price of all runs, if
    they share one.
    """
    runs = list(map(_check_run, runs))
    if price is None and len(prices := {run.price_per_hour for run in runs}) == 1:
        price = prices.pop()
    sets: dict[tuple[object, ...], list[RunRecord]] = {}
    for run in runs:
        if run.state != "unreadable":
            sets.setdefault(_identify_data(run), []).append(run)
    if len(sets) > 1:
        note = "Accuracies on different images cannot be compared: each dataset has a section."
        yield PageSection(f"{len(sets)} datasets", [note])
    results = list_published_results()
    published = [] if sets else results
    for number, part in enumerate(sets.values(), 1):
        comparable = results if _count_images(part[0]) == IMAGENET_IMAGES else []
        head, *others = _build_data_sections(
            part, comparable, price, f"data{number}-" if len(sets) > 1 else ""
        )
        for section in others if len(sets) > 1 else ():
            section.title += f" on {head.title}"
        yield from (head, *others)
        published = published or comparable
    if unreadable_notes := [
        f"{run.name}: {run.reason}" for run in runs if run.state == "unreadable"
    ]:
        yield PageSection("Unreadable runs", notes=unreadable_notes)
    if not sets:
        yield PageSection("Accuracy", figures=list(_make_figures([], published, 0.0, "")))
    if published:
        yield PageSection("All published results", tables=[_make_published_table(published)])


def _build_data_sections(
    runs: Sequence[RunRecord], published: Sequence[dict[str, Any]], price: float | None, prefix: str
) -> Iterator[PageSection]:
    """Yield the sections on the runs of a dataset; the names of its figures start with `prefix`."""
    groups = group_seeds(runs)
    series = make_labels(groups)
    epochs = [group.runs[0].epochs for group in groups]
    names = [
        f"{name}, {count:.4g} epoch{'' if count == 1 else 's'}"
        if count and len({*epochs}) > 1
        else name
        for count, name in zip(epochs, series, strict=True)
    ]
    titles = [
        name if len(group.runs) > 1 else f"{group.runs[0].name} ({name})"
        for group, name in zip(groups, names, strict=True)
    ]
    rows = [
        {"series": label, "name": name, "title": title} | _make_group_row(group, price or 0.0)
        for group, label, name, title in zip(groups, series, names, titles, strict=True)
        if group.top1 and group.mean("minutes") and group.mean("wall_minutes")
    ]
    runs_by_label = label_runs(groups, names)
    ema_notes = [
        f"In {name}, the raw weights reach {run.better_raw:.2f}% top-1, more than EMA."
        for name, run in runs_by_label.items()
        if run.better_raw
    ]
    extension_notes = [
        f"{name} continues from the stable phase of {run.extends}."
        for name, run in runs_by_label.items()
        if run.extends
    ]
    ranked = [pair for pair in zip(groups, titles, strict=True) if pair[0].top1]
    ranked.sort(key=lambda pair: (-mean(pair[0].top1), pair[0].mean("minutes") or 0.0))
    head = _make_headline(runs, rows, price, _judge_best(ranked))
    curves = describe_learning_curves(groups)
    advice = _advise_next(runs, [group for group, _ in ranked])
    yield replace(head, text=[*head.text, *ema_notes, *extension_notes, *curves, *advice])
    if len(rows) > 1 or (rows and published):
        figures = list(_make_figures(rows, published, price or 0.0, prefix))
        yield PageSection("Accuracy", figures=figures)
    if len(runs) > 1:
        yield PageSection("All runs", tables=[_make_run_table(runs_by_label, price)])
    yield make_section(runs_by_label, prefix)


def _identify_data(run: RunRecord) -> tuple[object, ...]:
    """Return a key that is equal for runs with comparable accuracies."""
    parts = read_settings(run.folder).get("data.fold", "").partition("/")[2]
    digest = "" if parts else read_image_facts(run.folder).get("eval_digest")
    return (digest,) if digest else (_name_data(run), parts or _count_images(run))


def _name_data(run: RunRecord) -> str:
    return PurePath(read_settings(run.folder).get("data.root", "")).name


def _count_images(run: RunRecord, key: str = "train_examples") -> int:
    """Return the number of a run's training or validation images; 0 if unknown."""
    return int(read_image_facts(run.folder).get(key, 0))


def _describe_data(runs: Sequence[RunRecord]) -> str:
    """Return the numbers of images and classes of a dataset; some runs may use a fraction."""
    facts = read_image_facts(max(runs, key=_count_images).folder)
    counts = (
        (facts.get("train_examples"), "training images"),
        (facts.get("eval_examples"), "validation images"),
        (len(facts.get("classes") or ()), "classes"),
    )
    return ", ".join(f"{n:,} {noun}" for n, noun in counts if n)


def _make_headline(
    runs: Sequence[RunRecord],
    rows: Sequence[dict[str, Any]],
    price: float | None,
    conclusion: Iterator[str],
) -> PageSection:
    """Return the first section; `rows` has the finished runs, grouped by seed."""
    front = charts.find_pareto(rows, "minutes")
    has_means = any(row["seeds"] > 1 for row in rows)
    tables = [_make_front_table(front, price)] if has_means and len(front) > 1 else []
    text = [*conclusion, *_iterate_facts(runs)]
    if front:
        lead = "Best settings by mean top-1 over seeds: " if has_means else "Best finished run: "
        text.insert(0, (lead if len(rows) > 1 else "") + _describe_best(front[-1], price))
    return PageSection(_name_data(runs[0]) or "Runs", text, tables=tables)


def _iterate_facts(runs: Sequence[RunRecord]) -> Iterator[str]:
    content = _describe_data(runs)
    yield f"Data: {content}." if content else "The data are unknown."
    states = Counter(run.state for run in runs)
    if states.keys() != {"finished"}:
        yield ", ".join(f"{count} {state}" for state, count in states.most_common()) + "."
    recipes = {f"recipe={run.recipe}" for run in runs}
    if shared := [*(recipes if len(recipes) == 1 else ()), *find_shared_changes(runs)]:
        yield f"{'All have' if len(runs) > 1 else 'Settings:'} {'  '.join(shared)}"


def _advise_next(runs: Sequence[RunRecord], ranked: Sequence[SeedGroup]) -> Iterator[str]:
    """Yield the commands that resume unfinished runs, and one that uses the best settings."""
    resumable = [run for run in runs if run.resumable]
    for run in resumable[:MAX_RESUMABLE]:
        yield f"Next: {run.resume} ({run.state} at {run.progress})"
    if len(resumable) > MAX_RESUMABLE:
        yield f"{len(resumable) - MAX_RESUMABLE} more runs can be resumed: resnet-recipes runs"
    if ranked:
        best = max(
            ranked[0].runs, key=lambda run: (run.state == "finished", run.top1_percent or 0.0)
        )
        yield f"Next: resnet-recipes predict {shlex.quote(str(best.folder))} IMAGES"


def _judge_best(ranked: Sequence[tuple[SeedGroup, str]]) -> Iterator[str]:
    """Yield the groups as accurate as the best, and compare the best two on the same images."""
    ties = [title for group, title in ranked[1:] if mean(group.top1) == mean(ranked[0][0].top1)]
    if ties:
        yield f"Equally accurate: {', '.join(ties)}."
    correct_images = [
        [correct for run in group.runs if (correct := CorrectImages.read(run.folder))]
        for group, _ in ranked[:2]
    ]
    if len(correct_images) > 1 and (difference := PairedDifference.of(*correct_images)):
        pair = " vs. ".join(title for _, title in ranked[:2])
        yield " ".join(describe_pair(pair, difference))


def _describe_best(best: dict[str, Any], price: float | None) -> str:
    scope = "per run" if best["seeds"] > 1 else "in total"
    cost = "" if price is None else f", {format_amount(best['cost'])} {scope}"
    source = f" (mean of {best['seeds']} runs)" if best["seeds"] > 1 else ""
    if best["seeds"] == 1 and best["low"] < best["high"]:
        source = f" (1 run, 95% interval {best['low']:.1f} to {best['high']:.1f}%)"
    return (
        f"{best['title']}, {best['top1_percent']:.2f}% top-1{source} in "
        f"{format_clock(60 * best['minutes'])} of training{cost}."
    )


def _make_front_table(front: Sequence[dict[str, Any]], price: float | None) -> Table:
    columns = {"name": "settings", "epochs": "epochs", "seeds": "runs", "top1_percent": "top-1 (%)"}
    columns |= {"minutes": "training"} | ({} if price is None else {"cost": "cost"})
    caption = (
        "Pareto front of the means over seeds: more accurate settings take over 10% longer, and "
        "with equal PFLOPs at least twice as long."
    )
    return Table(caption, columns, front, _FORMATS)


def _check_run(run: RunRecord) -> RunRecord:
    try:
        read_metrics(run.folder / METRICS)
        read_image_facts(run.folder)
        for name in (CORRECT_IMAGES, SUMMARY):
            read_json(run.folder / name, may_be_absent=True)
        return run
    except NotReadyError as error:
        return RunRecord(folder=run.folder, state="unreadable", reason=str(error.problems[0]))


def _make_figures(
    rows: Sequence[dict[str, Any]],
    published: Sequence[dict[str, Any]],
    price: float,
    prefix: str,
) -> Iterator[Figure]:
    open_points = [
        row
        | {
            "series": row["recipe"],
            "top1_percent": row["top1"],
            "cost": row["minutes"] / 60 * P4D_DOLLARS_PER_HOUR,
        }
        for row in published
        if row["minutes"] and not row["clock"] and USUAL_HARDWARE in row["hardware"]
    ]
    runs_note = published_note = cost_note = ""
    if rows:
        runs_note = (
            "Filled points: runs, by training time without evaluations and checkpoints. Bars: one "
            "standard deviation around the mean over seeds, or the 95% interval of a single run. "
        )
    if published:
        published_note = (
            f"Open points: results published for {USUAL_HARDWARE}, by steady-state training "
            "time, in which the first epoch is counted like the second. "
        )
        cost_note = f"; published results by training time, at {format_price(P4D_DOLLARS_PER_HOUR)}"
    usage = "Hover for details; zoom with Ctrl and the wheel, drag to move, double-click to reset."
    has_front = len(charts.find_pareto(rows or open_points, "minutes")) > 1
    lines_note = "The dashed line is the Pareto front. " if has_front else ""
    prices = f"{format_price(price)}, for the wall time of each run"
    axes = {
        "minutes": (
            "time",
            "training time (min)",
            f"{runs_note}{published_note}{lines_note}{usage}",
            open_points,
        ),
        "cost": ("cost", "cost ($)", f"The same by cost: {prices}{cost_note}.", open_points),
        "pflops": (
            "pflops",
            "training PFLOPs",
            "The same by training compute, which does not depend on the load of the machine.",
            [],
        ),
        "epochs": ("epochs", "epochs", "", []),
        "images": ("images", "training images", "", []),
    }
    for key, (name, title, caption, others) in axes.items():
        values = {row[key] for row in rows}
        if key == "minutes" or (len(values) > 1 and all(values)):
            yield Figure(f"{prefix}{name}", caption, charts.plot_accuracy(rows, key, title, others))


def _make_group_row(group: SeedGroup, price: float) -> dict[str, Any]:
    """Return the row of plots and tables for finished runs that differ only in their seeds."""
    first = group.runs[0]
    mean = group.mean("top1_percent") or 0.0
    images = _count_images(first, "eval_examples")
    low = mean - (group.noise or 0.0)
    high = mean + (group.noise or 0.0)
    if images and group.noise is None:
        low, high = compute_accuracy_interval(round(mean * images / 100), images)
    try:
        command = read_bytes(first.folder / COMMAND).decode(errors="replace").strip()
    except NotReadyError:
        command = ""
    return {
        "top1_percent": mean,
        "low": low,
        "high": high,
        "seeds": len(group.top1),
        "images": _count_images(first),
        "epochs": first.epochs or first.epochs_done,
        "minutes": group.mean("minutes"),
        "pflops": group.mean("pflops"),
        "cost": (group.mean("wall_minutes") or 0.0) / 60 * price,
        "hardware": first.devices,
        "command": command,
    }


def _make_run_table(runs: Mapping[str, RunRecord], price: float | None) -> Table:
    columns = {
        "name": "run",
        "state": "state",
        "epochs_done": "epochs",
        "top1_percent": "top-1 (%)",
        "pflops": "PFLOPs",
        "minutes": "training",
        "wall_minutes": "total",
    }
    columns |= {} if price is None else {"cost": "cost"}
    rows = [
        run.as_dict()
        | {
            "name": name,
            "state": ": ".join(filter(None, (run.state, run.reason.partition("\n")[0]))),
            "cost": run.cost(price or 0.0),
        }
        for name, run in runs.items()
    ]
    return Table("Click a column heading to sort.", columns, rows, _FORMATS)


def _make_published_table(published: Sequence[dict[str, Any]]) -> Table:
    return Table(
        "All published results. Click a column heading to sort. Times without a clock are "
        "steady-state training times.",
        {key: key for key in published[0]} | {"top1": "top-1 (%)", "minutes": "time (min)"},
        published,
    )
