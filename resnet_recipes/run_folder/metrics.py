"""The file metrics.jsonl of a run, one record per line, and the clocks derived from it."""

import errno
import json
import math
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from resnet_recipes.base.reading import open_regular, parse_json, read_bytes, unreadable

Record = dict[str, object]  # one line of metrics.jsonl


def papers_seconds(records: Sequence[Record], seconds: float) -> float | None:
    """Return the training seconds with the first epoch timed as the second.

    No cold cache or warm-up counts.

    The clock of the published time-to-train figures; `seconds` excludes evaluations and
    checkpoints. None if the run has no second epoch.
    """
    epochs = [float(record["seconds"]) for record in records if record["kind"] == "epoch"][:2]
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
    ends = [record for record in records if record["kind"] == "step" and not record["step"] % size]
    clock = [0.0, *(record["training_seconds"] for record in ends)]
    taken = (after - before for before, after in pairwise(clock))
    return {end["step"] // size - 1: seconds for end, seconds in zip(ends, taken, strict=True)}


def evaluation_seconds(records: Sequence[Record]) -> list[float]:
    """Return the seconds of each evaluation."""
    return [record["seconds"] for record in records if record["kind"] == "evaluation"]


_MAX_BYTES = 512 << 20  # two million records
_TAIL = 64 << 10  # bytes at the end that hold the last step and evaluation of an unfinished run

#: The values that are text; all others are numbers, or null where one was not finite.
_TEXT = {"kind", "devices", "path", "text", "reason"}

#: What every record has, and what those of each kind have as well; never null.
_ALWAYS = ("kind", "step", "epoch", "wall_seconds")
_NUMBERS = {
    "begin": ("startup_seconds", "training_seconds"),
    "step": (
        "loss",
        "lr",
        "pixels",
        "training_seconds",
        "images_per_second",
        "data_wait_share",
    ),
    "evaluation": ("examples", "seconds"),
    "epoch": ("seconds", "training_seconds"),
    "saved": ("seconds",),
    "compiled": ("seconds",),
}


def read_metrics(path: Path) -> list[Record]:
    """Return the records of a metrics.jsonl, none if it is absent. Raises NotReadyError.

    Lines that are no records are skipped: a kill may have cut one short.
    """
    if not os.path.lexists(path):
        return []
    lines = read_bytes(path, _MAX_BYTES).splitlines()
    return [record for line in lines if (record := _record(line)) is not None]


def last_records(path: Path) -> dict[str, Record]:
    """Return the last step and evaluation, and the first record, by kind.

    The last of any kind is "any".

    Reads only the beginning and the end of the file, if there is one. Raises NotReadyError.
    """
    found: dict[str, Record] = {}
    if not os.path.lexists(path):
        return found
    try:
        with open_regular(path) as file:
            head = file.read(_TAIL).partition(b"\n")[0]
            size = file.seek(0, os.SEEK_END)
            file.seek(max(len(head), size - _TAIL))
            lines = file.read(_TAIL).splitlines()
    except OSError as error:
        raise unreadable(path, error) from None
    while lines and not {"step", "evaluation"} <= found.keys():
        _note(lines.pop(), found)
    _note(head, found)
    return found


def append(path: Path, record: Record) -> None:
    """Add a record, on a new line even if the last write was cut short. Raises OSError."""
    with open(path, "ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        text = line(record)
        if end:
            file.seek(end - 1)
            text = text if file.read(1) == b"\n" else "\n" + text
        data = text.encode()
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, "the disk is full")


def line(record: Record) -> str:
    """Return the line of a record."""
    return json.dumps(finite(record)) + "\n"


def finite(value: object) -> object:
    """Return the value with every nan and infinity as null: JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _note(line: bytes, found: dict[str, Record]) -> None:
    """Keep the record of a line, unless a later one of its kind is known."""
    if record := _record(line):
        found.setdefault(str(record["kind"]), record)
        found.setdefault("any", record)


def _record(line: bytes) -> Record | None:
    """Return the record of a line; None if it is not one with the right values."""
    try:
        record = parse_json(line.decode())
    except ValueError:
        return None
    if not isinstance(record, dict) or not all(map(_is_right, record, record.values())):
        return None
    needed = (*_ALWAYS, *_NUMBERS.get(record.get("kind"), ()))
    return record if all(record.get(key) is not None for key in needed) else None


def _is_right(key: str, value: object) -> bool:
    if key in _TEXT:
        return isinstance(value, str)
    return type(value) is int or (key != "step" and (value is None or type(value) is float))
