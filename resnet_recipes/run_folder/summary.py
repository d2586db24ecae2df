"""Compute the clocks, speeds and summary of a run from its records alone."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.money import compute_cost
from resnet_recipes.run_folder.facts import PublishedResult, RunFacts, find_nearest
from resnet_recipes.run_folder.metrics import Metrics, Record, filter_kind, get_top1


@dataclass(frozen=True)
class Summary:
    """The result of a run; the field names are the keys of summary.json."""

    recipe: str
    folder: str
    devices: str
    steps: int
    epochs: float
    sessions: int  # number of sessions that started to train
    weights: str  # file with the trained weights: EMA weights if the recipe uses EMA
    raw_weights: str | None  # file with the raw weights, if there are EMA weights
    best_weights: str | None  # file with the weights of the best evaluation, with checkpoint.best
    best: Metrics | None  # the best of several, unless it is the last and checkpoint.best is off
    best_epoch: float | None
    evaluations: int
    ema: Metrics | None  # last evaluation of the EMA weights, if the recipe uses EMA
    raw: Metrics | None  # last evaluation of the raw weights
    training_pflops: float  # PFLOPs of convolutions and linear layers, over all devices
    training_seconds: float  # training time, without evaluation and checkpoints
    steady_state_seconds: float | None  # training time, epoch 1 with the time of epoch 2
    mlperf_seconds: float | None  # first data access to last evaluation; see compute_mlperf_seconds
    estimated_seconds: float | None  # training seconds estimated before the start
    wall_seconds: float  # of these sessions, each from its launch to its last record
    price_per_hour: float | None  # `launch.price`
    cost: float | None  # cost of the wall time, if there is a price
    compile_seconds: float  # training seconds of compilation and cuDNN searches
    startup_seconds: float
    evaluation_seconds: float
    checkpoint_seconds: float
    seconds_by_epoch: tuple[float, ...]  # training seconds of each complete epoch
    images_per_second: float  # number of training images divided by the training seconds
    images_per_second_by_pixels: dict[int, float]  # excludes the first logged interval at a size
    data_wait_share: float  # fraction of the training time spent waiting for data, 0 to 1
    published: PublishedResult | None  # published result with the nearest number of epochs

    def as_json(self) -> Record:
        """Return the contents of summary.json; keys include units."""
        values = asdict(self)
        accuracy: Record = {}
        for name in ("ema", "raw"):
            metrics = values.pop(name)
            if metrics is not None:
                accuracy |= metrics.to_record(name) | {"eval_examples": metrics.examples}
        if best := values.pop("best"):
            accuracy |= best.to_record("best")
        if published := values.pop("published"):
            published = {"top1_percent": published.pop("top1"), **published}
        return {"recipe": values.pop("recipe"), **accuracy, **values, "published": published}


class WeightFiles(NamedTuple):
    """The files with the weights of a finished run."""

    final: Path  # the EMA weights if the recipe uses EMA
    raw: Path | None = None  # the raw weights, if there are EMA weights
    best: Path | None = None  # the weights of the best evaluation, with checkpoint.best


class Interval(NamedTuple):
    """The training between two logged steps of one session."""

    image_size: int
    steps: int
    seconds: float
    data_wait: float
    is_settled: bool  # whether it has one image size and is not the first interval at that size


def find_intervals(records: Sequence[Record]) -> Iterator[Interval]:
    """Yield the intervals between consecutive `begin` and `step` records."""
    before: Record | None = None
    for record in records:
        if record["kind"] == "step" and before is not None:
            is_settled = before["kind"] == "step" and before["pixels"] == record["pixels"]
            seconds = record["training_seconds"] - before["training_seconds"]
            steps = record["step"] - before["step"]
            yield Interval(record["pixels"], steps, seconds, record["data_wait_share"], is_settled)
        if record["kind"] in ("begin", "step"):
            before = record


def compute_throughput(records: Sequence[Record], global_size: int) -> dict[int, float]:
    """Return images per second by image size, from settled intervals only."""
    steps = defaultdict[int, int](int)
    seconds = defaultdict[int, float](float)
    for interval in find_intervals(records):
        if interval.is_settled and interval.seconds > 0:
            steps[interval.image_size] += interval.steps
            seconds[interval.image_size] += interval.seconds
    return {size: global_size * steps[size] / seconds[size] for size in sorted(steps)}


def compute_data_wait(records: Sequence[Record]) -> float:
    """Return the fraction of the logged training time that steps waited for data."""
    parts = list(find_intervals(records))
    total = sum(part.seconds for part in parts)
    return sum(part.data_wait * part.seconds for part in parts) / total if total > 0 else 0.0


def compute_steady_state_seconds(records: Sequence[Record], seconds: float) -> float | None:
    """Return the training seconds, with the duration of the second epoch for the first.

    This excludes cold caches and warm-up, as in published time-to-train figures. `seconds` does not
    include evaluation and checkpoints. None if the run has no second epoch.
    """
    epochs = [float(record["seconds"]) for record in filter_kind(records, "epoch")[:2]]
    return seconds - epochs[0] + epochs[1] if len(epochs) == 2 else None


def compute_mlperf_seconds(records: Sequence[Record]) -> float | None:
    """Return the seconds from the first data access to the last evaluation.

    The clock of a run with a target stops at the evaluation that reached it. Evaluations,
    checkpoints and steps repeated after a resume count; startup does not. None if there is no
    evaluation.
    """
    seconds, startup = None, 0.0
    for record in records:
        if record["kind"] == "begin":
            startup += record["startup_seconds"]
        elif record["kind"] == "evaluation":  # with EMA, it ends before the raw weights' part
            seconds = record["wall_seconds"] - record.get("raw_seconds", 0.0) - startup
    return seconds


def time_epochs(records: Sequence[Record], size: int) -> dict[int, float]:
    """Return the training seconds of each epoch of `size` steps, by epoch number from 0.

    Each is measured from the previous recorded epoch end; the records may skip epochs.
    """
    ends = [record for record in filter_kind(records, "step") if not record["step"] % size]
    clock = [0.0, *(record["training_seconds"] for record in ends)]
    durations = (after - before for before, after in pairwise(clock))
    return {end["step"] // size - 1: seconds for end, seconds in zip(ends, durations, strict=True)}


def time_evaluations(records: Sequence[Record]) -> list[float]:
    """Return the seconds of each evaluation."""
    return [record["seconds"] for record in filter_kind(records, "evaluation")]


def summarize(
    records: Sequence[Record], facts: RunFacts, seconds: float, files: WeightFiles
) -> Summary:
    """Summarize a finished run.

    `seconds` is its training time; its wall time comes from the last record.
    """
    begins = filter_kind(records, "begin")
    evaluations = filter_kind(records, "evaluation")
    last = evaluations[-1] if evaluations else {}
    best = max(  # the last new best of checkpoint.best, or the last with the highest top-1
        reversed(evaluations),
        key=lambda record: (record.get("is_best", 0) * record["step"], get_top1(record) or 0.0),
        default=last,
    )
    best = best if len(evaluations) > 1 and (files.best or best is not last) else {}
    wall_seconds = records[-1]["wall_seconds"]
    price = facts.price_per_hour
    done = records[-1]["step"]  # fewer than planned if the run reached its target
    return Summary(
        recipe=facts.recipe,
        folder=str(facts.folder),
        devices=facts.devices,
        steps=done,
        epochs=round(facts.epoch(done), 4),
        sessions=len(begins),
        weights=str(files.final),
        raw_weights=str(files.raw) if files.raw else None,
        best_weights=str(files.best) if files.best else None,
        best=Metrics.of(best, "ema") or Metrics.of(best, "raw"),
        best_epoch=best.get("epoch"),
        evaluations=len(evaluations),
        ema=Metrics.of(last, "ema"),
        raw=Metrics.of(last, "raw"),
        training_pflops=facts.pflops(done),
        training_seconds=seconds,
        steady_state_seconds=compute_steady_state_seconds(records, seconds),
        mlperf_seconds=compute_mlperf_seconds(records),
        estimated_seconds=facts.estimated_seconds,
        wall_seconds=wall_seconds,
        price_per_hour=price,
        cost=None if price is None else compute_cost(wall_seconds, price),
        compile_seconds=sum(r["seconds"] for r in filter_kind(records, "compiled")),
        startup_seconds=sum(r["startup_seconds"] for r in begins),
        evaluation_seconds=sum(time_evaluations(records)),
        checkpoint_seconds=sum(r["seconds"] for r in filter_kind(records, "saved")),
        seconds_by_epoch=tuple(r["seconds"] for r in filter_kind(records, "epoch")),
        images_per_second=done * facts.global_size / seconds if seconds > 0 else 0.0,
        images_per_second_by_pixels=compute_throughput(records, facts.global_size),
        data_wait_share=compute_data_wait(records),
        published=find_nearest(facts.published, facts.epochs),
    )
