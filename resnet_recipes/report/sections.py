"""The sections of the report: runs and published results, as figures and tables."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.reading import read_bytes, read_json
from resnet_recipes.estimating.published import CONTRADICTIONS, IMAGENET_IMAGES, published
from resnet_recipes.report.comparison import Group, grouped, settings
from resnet_recipes.report.headline import headline
from resnet_recipes.report.page import charts, curves
from resnet_recipes.report.page.html import Figure, Legend, Section, Table
from resnet_recipes.run_folder.metrics import read_metrics
from resnet_recipes.run_folder.names import COMMAND, DATA, METRICS, SUMMARY
from resnet_recipes.run_folder.runs import RunRecord, shared_changes

#: The machine of most published results.
USUAL = "8x A100"

#: Dollars per hour of a p4d.24xlarge (8 A100) on demand: Composer's AWS tutorial has 27 min for
#: 14.77 dollars.
A100_PRICE = 32.8

#: Runs whose curves are drawn: more lines than this cannot be told apart.
MOST_CURVES = 10


def sections_of(runs: Sequence[RunRecord], price: float | None) -> Iterator[Section]:
    """Yield the sections of a report on `runs`, which may be empty.

    With `price` per hour, cost as well as time.
    """
    runs = list(map(_checked, runs))
    finished = [
        run
        for run in runs
        if run.state == "finished"
        and run.top1_percent is not None
        and run.minutes
        and run.wall_minutes
    ]
    known = list(map(asdict, published()))
    rows = [_run_row(run, price or 0.0) for run in finished]
    if runs:
        yield headline(runs, rows, price)
    if rows and not any(map(_is_on_imagenet, finished)):
        known = []  # published results are for ImageNet
    yield _accuracy(rows, known, price)
    groups = grouped(finished)
    if any(len(group.runs) > 1 for group in groups) or len(groups) > 1:
        yield _tradeoff(list(map(_group_row, groups)))
    if runs:
        yield Section("All runs", tables=[_run_table(runs, price)])
        yield _course([run for run in runs if run.state != "unreadable"])
    if known:
        yield Section(
            "All published results", tables=[_published_table(known)], notes=CONTRADICTIONS
        )


def _checked(run: RunRecord) -> RunRecord:
    """Return the run, or one that is unreadable.

    A damaged folder is a line of the report, not its end.
    """
    try:
        settings(run.folder)
        read_metrics(run.folder / METRICS)
        for name in (DATA, SUMMARY):
            read_json(run.folder / name, may_be_absent=True)
        return run
    except NotReadyError as error:
        return RunRecord(folder=run.folder, state="unreadable", reason=str(error.problems[0]))


def _accuracy(
    mine: Sequence[dict[str, Any]],
    known: Sequence[dict[str, Any]],
    price: float | None,
) -> Section:
    """Return the section on accuracy against time, and against cost if there is a price."""
    background = [
        row | {"cost": row["minutes"] / 60 * A100_PRICE}
        for row in known
        if row["clock"] == "papers" and USUAL in row["hardware"]
    ]
    own = (
        "Filled: runs, by training time without evaluations and checkpoints; the dashed line joins "
        "those that no other run beats. "
    ) * bool(mine)
    beside = (
        f"Open: results published for {USUAL}, on the papers' clock, where the first epoch counts "
        "as long as the second. "
    ) * bool(known)
    figures = [
        Figure(
            "time",
            f"{own}{beside}Hover for more; zoom with Ctrl and the wheel, drag to move, "
            "double-click to reset.",
            charts.accuracy(mine, background, "minutes", "training time (min)"),
        )
    ]
    text = [
        "The published results are for ImageNet, and left out: these runs trained on other images."
    ] * (not known)
    if mine and price is not None:
        figures.append(
            Figure(
                "cost",
                f"The same against cost: runs by all the time they took, at {price:g} dollars per "
                f"hour{f'; published results by training time, at {A100_PRICE}' * bool(known)}.",
                charts.accuracy(mine, background, "cost", "cost ($)"),
            )
        )
    elif mine:
        text.append("Add --price PER_HOUR to see accuracy against cost.")
    recipes = sorted({row["recipe"] for row in background})
    legend = None if mine else Legend("recipe", recipes)
    return Section("Accuracy against time", text, legend=legend, figures=figures)


def _tradeoff(rows: Sequence[dict[str, Any]]) -> Section:
    """Return the section on what more training of each recipe brings."""
    axes = [
        ("tradeoff", "minutes", "training time (min)", "Each point is one recipe at one length."),
        (
            "tradeoff-pflops",
            "pflops",
            "training PFLOPs",
            "The same against arithmetic, which no other program on the machine changes.",
        ),
        ("tradeoff-epochs", "epochs", "epochs", "The same against epochs."),
    ]
    return Section(
        "Trade-off by recipe",
        ["Means over seeds; bars are one standard deviation of a single run."],
        figures=[
            Figure(name, caption, charts.tradeoff(rows, x, title))
            for name, x, title, caption in axes
            if all(row[x] for row in rows)
        ],
    )


def _course(runs: Sequence[RunRecord]) -> Section:
    """Return the section on what happened during the runs."""
    shown = sorted(runs, key=lambda run: -(run.top1_percent or 0.0))[:MOST_CURVES]
    points = [
        point | {"recipe": run.recipe} for run in shown for point in curves.points(run.folder)
    ]
    quantities = (
        ("top1_percent", "top-1 accuracy (%)"),
        ("loss", "training loss"),
        ("lr", "learning rate"),
        ("pixels", "image size (px)"),
        ("images_per_second", "images/s"),
        ("data_wait_share", "share waiting for data"),
    )
    figures = [
        Figure(
            f"course-{key}",
            f"{title[0].upper()}{title[1:]} over the epochs.",
            charts.curve(points, key, title),
        )
        for key, title in quantities
        if any(point.get(key) is not None for point in points)
    ]
    bars = [row for run in shown for row in _phases(run)]
    if bars:
        caption = "Where the time went, in all."
        figures.append(Figure("phases", caption, charts.phases(bars), has_own_legend=True))
    left_out = f"This shows the {MOST_CURVES} most accurate of {len(runs)} runs."
    names = sorted({point["name"] for point in points})
    legend = Legend("name", names) if names else None
    text = [left_out] * (len(runs) > MOST_CURVES)
    return Section("During the runs", text, legend=legend, figures=figures)


def _phases(run: RunRecord) -> Iterator[dict[str, Any]]:
    summary = read_json(run.folder / SUMMARY, may_be_absent=True)
    try:
        parts = {
            name: float(summary[f"{key}_seconds"]) / 60
            for name, key in (
                ("training", "training"),
                ("evaluation", "evaluation"),
                ("checkpoints", "checkpoint"),
                ("start-up", "startup"),
            )
        }
        waiting = parts["training"] * float(summary["data_wait_share"])
    except (ValueError, KeyError, TypeError):
        return
    split_up = {"training": parts["training"] - waiting, "waiting for data": waiting} | {
        k: v for k, v in parts.items() if k != "training"
    }
    for rank, (phase, minutes) in enumerate(split_up.items()):
        yield {
            "name": run.name,
            "recipe": run.recipe,
            "phase": phase,
            "minutes": minutes,
            "rank": rank,
        }


def _is_on_imagenet(run: RunRecord) -> bool:
    return read_json(run.folder / DATA, may_be_absent=True).get("train_examples") == IMAGENET_IMAGES


def _run_row(run: RunRecord, price: float) -> dict[str, Any]:
    try:
        command = read_bytes(run.folder / COMMAND).decode(errors="replace").strip()
    except NotReadyError:
        command = ""
    return {
        "name": run.name,
        "recipe": run.recipe,
        "top1_percent": run.top1_percent,
        "epochs": run.epochs or run.epochs_done,
        "minutes": run.minutes,
        "cost": run.cost(price),
        "hardware": run.devices,
        "command": command,
    }


def _group_row(group: Group) -> dict[str, Any]:
    first, noise = group.runs[0], group.noise or 0.0
    mean = group.mean_top1 if group.mean_top1 is not None else first.top1_percent or 0.0
    return {
        "recipe": first.recipe,
        "epochs": first.epochs,
        "pflops": first.pflops,
        "minutes": group.minutes or first.minutes,
        "mean_top1_percent": mean,
        "low": mean - noise,
        "high": mean + noise,
        "seeds": len(group.runs),
    }


def _run_table(runs: Sequence[RunRecord], price: float | None) -> Table:
    shared = shared_changes(runs)
    headings = [
        "run",
        "recipe",
        "changed",
        "state",
        "epochs",
        "top-1 (%)",
        "PFLOPs",
        "training (min)",
        "in all (min)",
        *(["cost ($)"] if price is not None else []),
    ]
    rows = [
        [
            run.name,
            run.recipe,
            " ".join(change for change in run.changes_besides_name if change not in shared),
            ": ".join(filter(None, (run.state, run.reason.partition("\n")[0]))),
            run.epochs_done,
            run.top1_percent,
            run.pflops,
            run.minutes,
            run.wall_minutes,
            *([run.cost(price)] if price is not None else []),
        ]
        for run in runs
    ]
    return Table("All runs; a heading sorts.", headings, rows)


def _published_table(known: Sequence[dict[str, Any]]) -> Table:
    keys = (
        "recipe",
        "label",
        "epochs",
        "top1_percent",
        "minutes",
        "clock",
        "hardware",
        "source",
        "note",
    )
    return Table(
        "All published results; a heading sorts. The clock says what the time includes: papers "
        "(no evaluation, no checkpoint), mlperf (evaluations too), wall (everything).",
        [{"top1_percent": "top-1 (%)", "minutes": "time (min)"}.get(key, key) for key in keys],
        [[row[key] for key in keys] for row in known],
    )
