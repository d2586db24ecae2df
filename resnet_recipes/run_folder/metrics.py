"""The file metrics.jsonl of a run, one record per line: its schema, reading and writing."""

import errno
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self

from resnet_recipes.base.reading import make_read_error, open_regular, parse_json, read_bytes

Record = dict[str, Any]  # one line of metrics.jsonl

#: The figures of an evaluation, each with the end of its key.
_FIGURES = {
    "top1": "top1_percent",
    "top5": "top5_percent",
    "loss": "loss",
    "balanced": "balanced_percent",
}


class Metrics(NamedTuple):
    """One evaluation with one set of weights."""

    top1: float  # percent
    top5: float  # percent
    loss: float  # mean over the examples
    examples: int
    # percent, the mean over classes of their top-1
    balanced: float | None = None

    @classmethod
    def of(cls, evaluation: Record, weights: str) -> Self | None:
        """Return the metrics of "ema" or "raw" weights in a record; None without them."""
        if f"{weights}_top1_percent" not in evaluation:
            return None
        values = {name: evaluation.get(f"{weights}_{key}") for name, key in _FIGURES.items()}
        return cls(examples=evaluation["examples"], **values)

    def keyed(self, weights: str) -> Record:
        """Return its figures under the keys of records."""
        return {f"{weights}_{key}": getattr(self, name) for name, key in _FIGURES.items()}

    @property
    def named(self) -> dict[str, float]:
        """Its figures under the names that a person sees, with balanced accuracy if it differs."""
        figures = {"top-1": self.top1, "top-5": self.top5}
        if self.balanced is not None and f"{self.balanced:.2f}" != f"{self.top1:.2f}":
            figures["balanced"] = self.balanced
        return figures


class StepMetrics(NamedTuple):
    """The measurements since the last logged step."""

    done: int  # steps completed
    steps: int  # steps since the last logged one
    # from here on, the names are the keys of a record
    loss: float  # their mean
    lr: float
    pixels: int  # size of the training images
    training_seconds: float  # of the run so far, without evaluation and checkpoints
    images_per_second: float
    data_wait_share: float  # of the time, in which the step waited for data, 0 to 1

    def keyed(self) -> Record:
        """Return its figures under the keys of records."""
        return {key: getattr(self, key) for key in _NUMBERS["step"]}


#: The values that are text; all others are numbers, or null where one was not finite.
_TEXT = {"kind", "devices", "path", "text", "reason"}

#: Keys of every record, and further keys by kind; never null.
_ALWAYS = ("kind", "step", "epoch", "wall_seconds")
_NUMBERS = {
    "begin": ("startup_seconds", "training_seconds"),
    "step": StepMetrics._fields[2:],
    "evaluation": ("examples", "seconds"),
    "epoch": ("seconds", "training_seconds"),
    "saved": ("seconds",),
    "compiled": ("seconds",),
}

_MAX_BYTES = 512 << 20  # two million records
_TAIL = 64 << 10  # bytes at the end that hold the last step and evaluation of an unfinished run


def filter_kind(records: Iterable[Record], kind: str) -> list[Record]:
    """Return the records of one kind."""
    return [record for record in records if record["kind"] == kind]


def get_top1(evaluation: Record) -> float | None:
    """Return the accuracy of the weights that count, in percent: EMA's, if there are any."""
    return evaluation.get("ema_top1_percent", evaluation.get("raw_top1_percent"))


def read_metrics(path: Path) -> list[Record]:
    """Return the records of a metrics.jsonl, none if it is absent. Raises NotReadyError.

    Lines that are not records are skipped: a kill may have truncated a line.
    """
    if not os.path.lexists(path):
        return []
    lines = read_bytes(path, _MAX_BYTES).splitlines()
    return [record for line in lines if (record := _parse_record(line)) is not None]


def read_last_records(path: Path) -> dict[str, Record]:
    """Return the last step and evaluation, and the first record, by kind.

    The last of any kind is "any".

    Reads only the beginning and the end of the file, if there is one. Raises NotReadyError.
    """
    records: dict[str, Record] = {}
    if not os.path.lexists(path):
        return records
    try:
        with open_regular(path) as file:
            head = file.read(_TAIL).partition(b"\n")[0]
            size = file.seek(0, os.SEEK_END)
            file.seek(max(len(head), size - _TAIL))
            lines = file.read(_TAIL).splitlines()
    except OSError as error:
        raise make_read_error(path, error) from None
    while lines and not {"step", "evaluation"} <= records.keys():
        _keep_latest(lines.pop(), records)
    _keep_latest(head, records)
    return records


def append_record(path: Path, record: Record) -> None:
    """Add a record, on a new line even if the last write was cut short. Raises OSError."""
    with open(path, "ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        text = format_record(record)
        if end:
            file.seek(end - 1)
            text = text if file.read(1) == b"\n" else "\n" + text
        data = text.encode()
        if file.write(data) != len(data):
            raise OSError(errno.ENOSPC, "the disk is full")


def format_record(record: Record) -> str:
    """Return the line of a record."""
    return json.dumps(replace_nonfinite(record)) + "\n"


def replace_nonfinite(value: object) -> object:
    """Return the value with every nan and infinity as null: JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _keep_latest(line: bytes, records: dict[str, Record]) -> None:
    """Keep the record of a line, unless it has a later record of its kind."""
    if record := _parse_record(line):
        records.setdefault(str(record["kind"]), record)
        records.setdefault("any", record)


def _parse_record(line: bytes) -> Record | None:
    """Return the record of a line; None if it is not one with the right values."""
    try:
        record = parse_json(line.decode())
    except ValueError:
        return None
    if not isinstance(record, dict) or not all(map(_is_valid, record, record.values())):
        return None
    needed = (*_ALWAYS, *_NUMBERS.get(record.get("kind"), ()))
    return record if all(record.get(key) is not None for key in needed) else None


def _is_valid(key: str, value: object) -> bool:
    if key in _TEXT:
        return isinstance(value, str)
    return type(value) is int or (key != "step" and (value is None or type(value) in (bool, float)))
