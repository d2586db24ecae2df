"""The text that a finished run prints."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from resnet_recipes.base.errors import LabeledText
from resnet_recipes.base.money import format_cost
from resnet_recipes.base.text import format_clock, format_count, format_number, format_percent
from resnet_recipes.recipe.strict_yaml import shorten_path
from resnet_recipes.report.paired_difference import compute_accuracy_interval
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.run_folder.runs import MAX_POINTS_BEHIND
from resnet_recipes.run_folder.summary import Summary


def format_title(summary: Summary) -> str:
    """Return the first line: recipe, duration, number of sessions, and devices."""
    sessions = f", in {summary.sessions} sessions" if summary.sessions > 1 else ""
    epochs = f"{summary.epochs:.4g} epoch{'' if summary.epochs == 1 else 's'}"
    return f"{summary.recipe}: {epochs}, {summary.steps:,} steps{sessions}, on {summary.devices}"


def describe_run(summary: Summary, full: bool = False) -> Iterator[LabeledText]:
    """Yield the lines below the title; `full` adds more times, and the speed at each image size."""
    yield from _describe_accuracy(summary, full)
    yield from _describe_published(summary)
    yield from _describe_training(summary)
    if full:
        yield from _describe_times(summary)
    yield "", ""
    run = shorten_path(Path(summary.folder))
    yield "results", run
    yield "weights", shorten_path(Path(summary.weights))
    yield "curves", f"resnet-recipes report {shlex.quote(str(Path(run).parent))}"
    yield "predict", f"resnet-recipes predict {shlex.quote(run)} IMAGE ..."


def _describe_accuracy(summary: Summary, full: bool) -> Iterator[LabeledText]:
    ema, raw = summary.ema, summary.raw
    raw_file = Path(summary.raw_weights).name if summary.raw_weights else "raw weights"
    metrics = ema or raw
    if metrics is not None:
        averaged = " (EMA)" if ema else ""
        images = f"on {metrics.examples:,} images{averaged}"
        yield "accuracy", f"{_format_metrics(metrics)}   {images}"
        correct = round(metrics.top1 * metrics.examples / 100)
        low, high = compute_accuracy_interval(correct, metrics.examples)
        yield "", f"95% interval of top-1: {low:.1f} to {high:.1f}%"
    if summary.best:
        source = f"epoch {summary.best_epoch:.4g}, best of {summary.evaluations} evaluations"
        yield "", f"{_format_metrics(summary.best)}   {source}"
        if summary.best_weights:
            yield "", f"{Path(summary.best_weights).name} (optimistic: chosen on these images)"
    if ema is None or raw is None:
        return
    is_far_behind = raw.top1 - ema.top1 > MAX_POINTS_BEHIND
    if full or is_far_behind:
        yield "", f"{_format_metrics(raw)}   {raw_file}"
    if is_far_behind:
        yield "", f"WARNING: EMA is {raw.top1 - ema.top1:.2f} points worse than the raw weights"
        yield "", f"use {raw_file}, or train with"
        half_life = max(1, summary.steps // 50)
        yield "", f"methods.ema.half_life={half_life}ba"
        yield "", f"methods.ema.update_interval={max(1, half_life // 5)}ba"


def _format_metrics(metrics: Metrics) -> str:
    """Return the accuracies, without a top-5 of 100%, which few classes always reach."""
    figures = metrics.named
    if metrics.top5 == 100:
        del figures["top-5"]
    return "   ".join(f"{name} {value:5.2f}%" for name, value in figures.items())


def _describe_published(summary: Summary) -> Iterator[LabeledText]:
    """Yield the nearest published result; add the difference if the durations are similar."""
    published = summary.published
    metrics = summary.ema or summary.raw
    if published is None or metrics is None:
        return
    duration = f" after {published.epochs} epochs" if published.epochs else ""
    duration += f" in {published.time}" if published.time else ""
    yield "published", f"top-1 {published.top1:5.2f}%{duration}"
    if published.hardware or published.source:
        yield "", "; ".join(text for text in (published.hardware, published.source) if text)
    if published.epochs and abs(published.epochs - summary.epochs) <= 0.1 * published.epochs:
        yield "", f"this run: {metrics.top1 - published.top1:+.2f} points"


def _describe_training(summary: Summary) -> Iterator[LabeledText]:
    estimate = ""
    if summary.estimated_seconds:
        estimate = f" (estimated {format_clock(summary.estimated_seconds)})"
    seconds = format_clock(summary.training_seconds)
    yield "training", f"{seconds} without evaluations and checkpoints{estimate}"
    speed = format_number(summary.images_per_second)
    yield "", f"{speed} images/s, data wait {format_percent(summary.data_wait_share)}"
    parts = {  # in full seconds, which add up
        "training": round(summary.training_seconds),
        format_count(summary.evaluations, "evaluation"): int(summary.evaluation_seconds),
        "startup": int(summary.startup_seconds),
        "checkpoints": int(summary.checkpoint_seconds),
    }
    parts["other"] = round(summary.wall_seconds) - sum(parts.values())
    parts_text = " + ".join(
        f"{name} {format_clock(seconds)}"
        for name, seconds in parts.items()
        if seconds >= 1 or name == "training"
    )
    yield "wall time", f"{format_clock(summary.wall_seconds)} = {parts_text}"
    if summary.cost is not None and summary.price_per_hour is not None:
        yield "cost", f"{format_cost(summary.cost, summary.price_per_hour)}, for the wall time"


def _describe_times(summary: Summary) -> Iterator[LabeledText]:
    times = {
        "steady state: first epoch counted like the second": summary.steady_state_seconds,
        "MLPerf's clock: from first image to last evaluation": summary.mlperf_seconds,
        "compilation and cuDNN searches": summary.compile_seconds,
    }
    known_times = [(name, seconds) for name, seconds in times.items() if seconds is not None]
    for index, (name, seconds) in enumerate(known_times):
        yield "" if index else "times", f"{format_clock(seconds):>8}   {name}"
    for index, (image_size, speed) in enumerate(summary.images_per_second_by_pixels.items()):
        text = (
            f"{format_number(speed):>8} images/s at {image_size} px, after the first logged steps"
        )
        yield "" if index else "speed", text
    pflops = f"{format_number(summary.training_pflops)} PFLOPs (10^15 operations)"
    yield "compute", f"{pflops}, forward and backward"
