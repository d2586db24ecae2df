"""Read and write metrics.jsonl of a run, one record per line, and define its schema."""

import errno
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self

from resnet_recipes.base.reading import make_read_error, open_regular, parse_json, read_bytes

Record = dict[str, Any]  # one line of metrics.jsonl

#: The metrics of an evaluation, with the suffix of each key.
_KEY_SUFFIXES = {
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
    # percent, mean of the per-class top-1 accuracies
    balanced: float | None = None

    @classmethod
    def of(cls, evaluation: Record, weights: str) -> Self | None:
        """Return the metrics of the "ema" or "raw" weights in a record, or None."""
        if f"{weights}_top1_percent" not in evaluation:
            return None
        values: Record = {
            name: evaluation.get(f"{weights}_{key}") for name, key in _KEY_SUFFIXES.items()
        }
        return cls(examples=evaluation["examples"], **values)

    def to_record(self, weights: str) -> Record:
        """Return the metrics under the keys of a record."""
        return {f"{weights}_{key}": getattr(self, name) for name, key in _KEY_SUFFIXES.items()}

    @property
    def named(self) -> dict[str, float]:
        """Metrics under their display names; balanced accuracy only if it differs from top-1."""
        figures = {"top-1": self.top1, "top-5": self.top5}
        if self.balanced is not None and f"{self.balanced:.2f}" != f"{self.top1:.2f}":
            figures["balanced"] = self.balanced
        return figures


class StepMetrics(NamedTuple):
    """Measurements since the last logged step."""

    done: int  # steps completed
    steps: int  # steps since the last logged step
    # the names below are also the keys of a record
    loss: float  # mean loss of these steps
    lr: float
    pixels: int  # training image size
    training_seconds: float  # seconds of the run so far, without evaluation and checkpoints
    images_per_second: float
    data_wait_share: float  # fraction of time spent waiting for data, 0 to 1

    def to_record(self) -> Record:
        return {key: getattr(self, key) for key in _NUMBER_KEYS["step"]}


#: Keys with text values; other values are numbers or booleans, or null for non-finite numbers.
_TEXT_KEYS = {"kind", "devices", "path", "text", "reason"}

#: Keys of all records. A record that lacks a required key, or has null there, is rejected.
_COMMON_KEYS = ("kind", "step", "epoch", "wall_seconds")
#: More required keys, by kind. Only a loss may be null: float16 may have skipped all steps.
_NUMBER_KEYS = {
    "begin": ("startup_seconds", "training_seconds"),
    "step": StepMetrics._fields[2:],
    "evaluation": ("examples", "seconds"),
    "epoch": ("seconds", "training_seconds"),
    "saved": ("seconds",),
    "compiled": ("seconds",),
}

_MAX_BYTES = 512 << 20  # about two million records

#: The end of a file, which has the last step and evaluation of an unfinished run.
_TAIL_BYTES = 64 << 10


def filter_kind(records: Iterable[Record], kind: str) -> list[Record]:
    """Return the records of one kind."""
    return [record for record in records if record["kind"] == kind]


def get_top1(evaluation: Record) -> float | None:
    """Return the top-1 of the EMA weights, or else of the raw weights, in percent, or None."""
    return evaluation.get("ema_top1_percent", evaluation.get("raw_top1_percent"))


def read_metrics(path: Path) -> list[Record]:
    """Return the records in metrics.jsonl; empty if it does not exist.

    Lines that are not records are skipped, since a killed process may leave a truncated line.
    Raises NotReadyError if it cannot be read or is larger than 512 MiB.
    """
    if not os.path.lexists(path):
        return []
    lines = read_bytes(path, _MAX_BYTES).splitlines()
    return [record for line in lines if (record := _parse_record(line)) is not None]


def read_last_records(path: Path) -> dict[str, Record]:
    """Return the last records, by kind; the last record of any kind has the key "any".

    Reads the end of the file, from its last line back to a step and an evaluation, and the first
    line. Records of other kinds are missing if no line that it reads has one. The result is empty
    if the file does not exist. Raises NotReadyError if it cannot be read.
    """
    records: dict[str, Record] = {}
    if not os.path.lexists(path):
        return records
    try:
        with open_regular(path) as file:
            head = file.read(_TAIL_BYTES).partition(b"\n")[0]
            size = file.seek(0, os.SEEK_END)
            file.seek(max(len(head), size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).splitlines()
    except OSError as error:
        raise make_read_error(path, error) from None
    while lines and not {"step", "evaluation"} <= records.keys():
        _keep_latest(lines.pop(), records)
    _keep_latest(head, records)
    return records


def append_record(path: Path, record: Record) -> None:
    """Append a record on a new line, even if the last write was incomplete.

    Raises OSError if it cannot be written completely.
    """
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
    """Return a record as a line."""
    return json.dumps(replace_nonfinite(record)) + "\n"


def replace_nonfinite(value: object) -> object:
    """Return the value with nan and infinity replaced by null, since JSON lacks them."""
    if isinstance(value, dict):
        return {key: replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _keep_latest(line: bytes, records: dict[str, Record]) -> None:
    """Store the record in a line, unless `records` has a later record of its kind."""
    if record := _parse_record(line):
        records.setdefault(str(record["kind"]), record)
        records.setdefault("any", record)


def _parse_record(line: bytes) -> Record | None:
    try:
        record = parse_json(line.decode())
    except ValueError:
        return None
    if not isinstance(record, dict) or not all(map(_is_valid, record, record.values())):
        return None
    numbers = [key for key in _NUMBER_KEYS.get(record.get("kind", ""), ()) if key != "loss"]
    return record if all(record.get(key) is not None for key in (*_COMMON_KEYS, *numbers)) else None


def _is_valid(key: str, value: object) -> bool:
    if key in _TEXT_KEYS:
        return isinstance(value, str)
    return type(value) is int or (key != "step" and (value is None or type(value) in (bool, float)))
