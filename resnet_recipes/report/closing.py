"""The page that a finished run prints."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from resnet_recipes.report.facts import Metrics
from resnet_recipes.report.summary import Summary
from resnet_recipes.report.text import clock_time, percent, pflops, printable, rate

#: Points of top-1 by which EMA's weights are behind the raw ones only if their half-life is too
#: long.
FAR_BEHIND = 1.0


def title(summary: Summary) -> str:
    """Return the first line."""
    resumed = f", in {summary.sessions} sessions" if summary.sessions > 1 else ""
    length = f"{summary.epochs:.4g} epochs, {summary.steps:,} steps{resumed}"
    return f"{printable(summary.recipe)}: {length}, on {printable(summary.devices)}"


def rows(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield label and text of every line.

    The label is empty if a line continues the previous one.
    """
    yield from _accuracy(summary)
    yield from _published(summary)
    yield from _times(summary)
    yield from _throughput(summary)
    yield "", ""
    yield "results", printable(summary.folder)
    yield "weights", printable(summary.weights)
    if summary.raw_weights:
        yield "", printable(summary.raw_weights)
    yield (
        "curves",
        printable(f"resnet-recipes report {shlex.quote(str(Path(summary.folder).parent))}"),
    )


def _accuracy(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield the accuracy of each weights file, and a warning if the averages are far behind."""
    ema, raw = summary.ema, summary.raw
    raw_file = Path(summary.raw_weights).name if summary.raw_weights else "raw weights"
    if ema is not None:
        yield (
            "accuracy",
            f"{_said(ema)}   {Path(summary.weights).name}: EMA, {ema.examples:,} images",
        )
    if raw is not None:
        yield (
            ("", f"{_said(raw)}   {raw_file}")
            if ema
            else ("accuracy", f"{_said(raw)}   {raw.examples:,} images")
        )
    if ema is not None and raw is not None and raw.top1 - ema.top1 > FAR_BEHIND:
        yield "", f"WARNING: EMA is {raw.top1 - ema.top1:.2f} points behind: use {raw_file}."
        yield (
            "",
            f"Its half-life is too long: try methods.ema.half_life={max(1, summary.steps // 50)}ba",
        )


def _said(metrics: Metrics) -> str:
    return f"top-1 {metrics.top1:5.2f} %   top-5 {metrics.top5:5.2f} %"


def _published(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield the nearest published result, and the difference if the lengths are about the same."""
    published, reached = summary.published, summary.ema or summary.raw
    if published is None or reached is None:
        return
    length = f" after {published.epochs} epochs" if published.epochs else ""
    took = f" in {published.minutes:g} min" if published.minutes else ""
    yield "published", f"top-1 {published.top1:5.2f} %{length}{took}"
    if published.hardware or published.source:
        yield (
            "",
            printable("; ".join(text for text in (published.hardware, published.source) if text)),
        )
    if published.epochs and abs(published.epochs - summary.epochs) <= 0.1 * published.epochs:
        yield "", f"this run: {reached.top1 - published.top1:+.2f} points"


def _times(summary: Summary) -> Iterator[tuple[str, str]]:
    yield (
        "training",
        f"{clock_time(summary.training_seconds):>8}   without evaluation and checkpoints",
    )
    yield "", f"{pflops(summary.training_pflops):>8}   PFLOPs, forward and backward"
    if summary.compile_seconds >= 1:
        yield (
            "",
            f"{clock_time(summary.compile_seconds):>8}   of it spent compiling kernels and "
            "capturing CUDA graphs",
        )
    if summary.training_seconds_papers_rule is not None:
        by_rule = clock_time(summary.training_seconds_papers_rule)
        yield "", f"{by_rule:>8}   papers' clock: the first epoch timed as the second"
    if summary.mlperf_seconds is not None:
        by_mlperf = clock_time(summary.mlperf_seconds)
        yield "", f"{by_mlperf:>8}   MLPerf's clock: from first image to last evaluation"
    if summary.estimated_seconds:
        error = 100 * (summary.estimated_seconds / summary.training_seconds - 1)
        yield (
            "",
            f"{clock_time(summary.estimated_seconds):>8}   estimated before the start: "
            f"{error:+.0f} %",
        )
    parts = (
        ("start-up", summary.startup_seconds),
        ("evaluation", summary.evaluation_seconds),
        ("checkpoints", summary.checkpoint_seconds),
    )
    others = ", ".join(f"{name} {clock_time(seconds)}" for name, seconds in parts)
    yield "wall clock", f"{clock_time(summary.wall_seconds):>8}   {others}"


def _throughput(summary: Summary) -> Iterator[tuple[str, str]]:
    waits = percent(summary.data_wait_share)
    yield "throughput", f"{rate(summary.images_per_second):>8} images/s overall, data wait {waits}"
    for pixels, speed in summary.images_per_second_by_pixels.items():
        yield "", f"{rate(speed):>8} images/s at {pixels} px"
