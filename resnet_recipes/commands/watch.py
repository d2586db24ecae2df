"""`resnet-recipes watch RUN`: follow a run from another terminal."""

import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from resnet_recipes.base.text import (
    Snippet,
    escape_controls,
    format_clock,
    format_number,
    format_percent,
    wrap_text,
)
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.printing import get_width
from resnet_recipes.command_line.run_arguments import read_runs
from resnet_recipes.command_line.usage import RUN_HELP, Usage
from resnet_recipes.report.terminal import is_live
from resnet_recipes.run_folder import METRICS
from resnet_recipes.run_folder.metrics import Record, filter_kind, get_top1, read_metrics
from resnet_recipes.run_folder.runs import RunRecord, read_run

if TYPE_CHECKING:
    from rich.console import RenderableType

USAGE = Usage(
    "resnet-recipes watch RUN",
    "follow a run from another terminal, with its loss curve",
    "resnet-recipes watch last",
    {"--once": "print the state of the run once"},
    f"{RUN_HELP} watch exits when the run ends. In a pipe, it prints one line per evaluation.",
    (1, 1),
    "one run",
)


_BLOCKS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"

READ_INTERVAL_SECONDS = 1.0


def check(arguments: Arguments) -> tuple[RunRecord]:
    """Return the run. Raises RecipeError if it cannot be read."""
    (record,) = read_runs(arguments.positional)
    return (record,)


def run(arguments: Arguments, record: RunRecord) -> int:
    """Show the run until it ends or Ctrl-C is pressed."""
    folder = record.folder
    if "--once" in arguments:
        for line in _format_run(record, read_metrics(folder / METRICS)):
            print("\n".join(wrap_text(line, get_width(), rest="    ")))
    elif is_live(sys.stdout):
        _follow(folder)
    else:
        _print(folder)
    return 0


def _follow(folder: Path) -> None:
    """Redraw one screen until the run ends."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        while True:
            run = read_run(folder)
            records = read_metrics(folder / METRICS)
            live.update(draw_screen(run, records, console.width), refresh=True)
            if run is None or run.state != "running":
                return
            time.sleep(READ_INTERVAL_SECONDS)


def _print(folder: Path) -> None:
    printed = 0
    while True:
        run = read_run(folder)
        evaluations = filter_kind(read_metrics(folder / METRICS), "evaluation")
        for record in evaluations[printed:]:
            print(f"epoch={record['epoch']:g} top1={get_top1(record) or 0:.2f}", flush=True)
        printed = len(evaluations)
        if run is None or run.state != "running":
            print(f"state={run.state if run else 'gone'}", flush=True)
            if run and run.resumable:
                print(f"resume: {run.resume}", flush=True)
            return
        time.sleep(READ_INTERVAL_SECONDS)


def draw_screen(record: RunRecord | None, records: list[Record], width: int) -> "RenderableType":
    """Return the screen of a run, `width` columns wide; `record` is None if the run was deleted."""
    from rich.console import Group
    from rich.text import Text

    lines = list(_format_run(record, records)) if record else ["the run folder is gone"]
    return Group(*map(Text, [*map(escape_controls, lines), draw_curve(records, width)]))


def _format_run(record: RunRecord, records: list[Record]) -> Iterator[str]:
    yield f"{record.name}: {record.state}, {record.progress}"
    last = next(reversed(filter_kind(records, "step")), {})
    if last:
        yield (
            f"loss {last['loss']:.3f}   lr {last['lr']:.3g}   {last['pixels']} px   "
            f"{format_number(last['images_per_second'])} images/s   data wait "
            f"{format_percent(last['data_wait_share'])}"
        )
    evaluations = filter_kind(records, "evaluation")
    if evaluations:
        points = [(get_top1(record) or 0.0, -record["epoch"]) for record in evaluations]
        best, epoch = max(points)
        yield f"top-1 {points[-1][0]:.2f}%   best {best:.2f}% at epoch {-epoch:.2f}"
    if record.state == "running" and (seconds := last.get("seconds_left")) is not None:
        yield f"about {format_clock(seconds)} left, with evaluations"
    if record.reason:
        yield f"reason: {record.shown_reason}"
    if record.resumable:
        yield Snippet(f"resume: {record.resume}")


def draw_curve(records: list[Record], width: int) -> str:
    """Return the loss so far as one line of blocks; empty before the second loss."""
    losses = [step["loss"] for step in filter_kind(records, "step") if step["loss"] is not None]
    if len(losses) < 2:
        return ""
    low = min(losses)
    high = max(losses)
    label = f"loss {high:.3g} to {low:.3g}   "
    count = min(len(losses), max(1, width - len(label)))
    ends = [len(losses) * index // count for index in range(count + 1)]
    means = [fmean(losses[first:end]) for first, end in pairwise(ends)]
    scale = (len(_BLOCKS) - 1) / ((high - low) or 1)
    return label + "".join(_BLOCKS[round((mean - low) * scale)] for mean in means)
