"""The clocks of a run, derived from its records."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from resnet_recipes.run_folder.metrics import Record, of_kind


def papers_seconds(records: Sequence[Record], seconds: float) -> float | None:
    """Return the training seconds with the first epoch timed as the second.

    No cold cache or warm-up counts.

    The clock of the published time-to-train figures; `seconds` excludes evaluations and
    checkpoints. None if the run has no second epoch.
    """
    epochs = [float(record["seconds"]) for record in of_kind(records, "epoch")[:2]]
    return seconds - epochs[0] + epochs[1] if len(epochs) == 2 else None


def mlperf_seconds(records: Sequence[Record]) -> float | None:
    """Return the seconds from the first touch of data to the last evaluation.

    That is the one that reached a target, if any. Evaluations, checkpoints and steps that a resumed
    run repeated count; start-ups do not. None without an evaluation.
    """
    readings = [
        reading for record, reading in mlperf_readings(records) if record["kind"] == "evaluation"
    ]
    return readings[-1] if readings else None


def mlperf_readings(records: Sequence[Record]) -> Iterator[tuple[Record, float]]:
    """Yield each record with the seconds on MLPerf's clock at which it was written.

    An evaluation is over when the accuracy that counts is known: EMA's, before the raw weights are
    evaluated as well.
    """
    off = 0.0
    for record in records:
        off += record["startup_seconds"] if record["kind"] == "begin" else 0.0
        yield record, record["wall_seconds"] - record.get("raw_seconds", 0.0) - off


def epoch_seconds(records: Sequence[Record], size: int) -> dict[int, float]:
    """Return the training seconds of each epoch of `size` steps, by number, counted from 0.

    Each is that since the end of the epoch before it in the records, which may leave some out.
    """
    ends = [record for record in of_kind(records, "step") if not record["step"] % size]
    clock = [0.0, *(record["training_seconds"] for record in ends)]
    taken = (after - before for before, after in pairwise(clock))
    return {end["step"] // size - 1: seconds for end, seconds in zip(ends, taken, strict=True)}


def evaluation_seconds(records: Sequence[Record]) -> list[float]:
    """Return the seconds of each evaluation."""
    return [record["seconds"] for record in of_kind(records, "evaluation")]
