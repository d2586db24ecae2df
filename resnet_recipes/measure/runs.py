"""Runs as read from their folders: state, changes, progress, accuracy, time."""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnet_recipes.base import atomic
from resnet_recipes.report.recorder import METRICS, SUMMARY

#: Bytes at the end of metrics.jsonl that hold the last step and evaluation of an unfinished run.
_TAIL = 64 << 10
_STEP = re.compile(r"step-\d+\.json")


@dataclass(frozen=True)
class RunRecord:
    """One run folder; None where a value was not recorded."""

    folder: Path
    recipe: str
    state: str  # finished | running | stopped | failed | killed
    changes: tuple[str, ...]  # settings that were typed, as key=value
    epochs: float | None  # of the whole run
    epochs_done: float
    top1_percent: float | None  # of the final weights: EMA's, if there are any
    pflops: float | None  # of training, forward and backward
    minutes: float | None  # training minutes: no evaluation, no checkpoint
    minutes_papers: float | None  # the same, the first epoch timed as the second
    minutes_mlperf: float | None  # from the first touch of data to the end of the last evaluation
    wall_minutes: float | None
    devices: str
    resumable: bool
    reason: str = ""  # why it failed or stopped

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.folder.name

    @property
    def changes_besides_name(self) -> tuple[str, ...]:
        """Settings that were typed, without the name of the run."""
        return tuple(change for change in self.changes if not change.startswith("run.name="))

    def cost(self, price: float) -> float | None:
        """Return what the wall time costs at `price` per hour."""
        return None if self.wall_minutes is None else self.wall_minutes / 60 * price

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON and CSV."""
        values = {key: value for key, value in vars(self).items() if key != "folder"}
        return {
            "name": self.name,
            "folder": str(self.folder),
            **values,
            "changes": list(self.changes),
        }


def runs_in(root: Path) -> Iterator[RunRecord]:
    """Yield the runs directly below `root`, by name; anything else is skipped."""
    for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
        if entry.is_dir() and (run := read_run(Path(entry.path))):
            yield run


def read_run(folder: Path) -> RunRecord | None:
    """Read one run folder; None if it is not one. Reads two small files of a finished run."""
    changes = _lines(folder / "overrides.txt")
    if changes is None:
        return None
    summary = atomic.read_json(folder / SUMMARY)
    if summary:
        return _finished(folder, changes, summary)
    return _unfinished(folder, changes)


def _finished(folder: Path, changes: tuple[str, ...], summary: dict[str, Any]) -> RunRecord:
    def minutes(key: str) -> float | None:
        seconds = _number(summary, key)
        return None if seconds is None else seconds / 60

    epochs = _number(summary, "epochs")
    top1 = _number(summary, "ema_top1_percent")
    return RunRecord(
        folder,
        str(summary.get("recipe", "")),
        "finished",
        changes,
        epochs,
        epochs or 0.0,
        _number(summary, "raw_top1_percent") if top1 is None else top1,
        _number(summary, "training_pflops"),
        minutes("training_seconds"),
        minutes("training_seconds_papers_rule"),
        minutes("mlperf_seconds"),
        minutes("wall_seconds"),
        str(summary.get("devices", "")),
        resumable=False,
    )


def _unfinished(folder: Path, changes: tuple[str, ...]) -> RunRecord:
    last = _last_records(folder / METRICS)
    ending = atomic.read_json(folder / "exit.json")
    provenance = atomic.read_json(folder / "provenance.json")
    saved = folder / "checkpoints"
    state, evaluation, step = (
        _state(folder, ending),
        last.get("evaluation", {}),
        last.get("any", {}),
    )
    top1 = _number(evaluation, "ema_top1_percent")
    seconds, wall = _number(last.get("step", {}), "training_seconds"), _number(step, "wall_seconds")
    return RunRecord(
        folder,
        str(provenance.get("recipe", "")),
        state,
        changes,
        _number(last.get("begin", {}), "epochs"),
        _number(step, "epoch") or 0.0,
        _number(evaluation, "raw_top1_percent") if top1 is None else top1,
        None,
        None if seconds is None else seconds / 60,
        None,
        None,
        None if wall is None else wall / 60,
        str(last.get("begin", {}).get("devices", "")),
        resumable=state != "running"
        and saved.is_dir()
        and any(_STEP.fullmatch(name) for name in os.listdir(saved)),
        reason=str(ending.get("message", "")) if state != "running" else "",
    )


def _state(folder: Path, ending: dict[str, Any]) -> str:
    if _is_locked(folder / "lock"):
        return "running"
    if not ending:
        return "killed"
    return "stopped" if ending.get("code") in (75, 130) else "failed"


def _is_locked(path: Path) -> bool:
    """Return whether a process holds the run's lock."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(handle)


def _last_records(path: Path) -> dict[str, dict[str, Any]]:
    """Return the first record, and from the file's end the last step, the last evaluation, and the last of any kind."""
    found: dict[str, dict[str, Any]] = {}
    try:
        with path.open("rb") as file:
            head = file.readline(_TAIL)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(len(head), size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return found
    while lines and not {"step", "evaluation"} <= found.keys():
        _note(lines.pop(), found)
    _note(head, found)
    return found


def _note(line: bytes, found: dict[str, dict[str, Any]]) -> None:
    """Keep the record of a line, unless a later one of its kind is known."""
    try:
        record = json.loads(line)
    except ValueError:
        return
    if isinstance(record, dict) and isinstance(record.get("kind"), str):
        found.setdefault(record["kind"], record)
        found.setdefault("any", record)


def _lines(path: Path) -> tuple[str, ...] | None:
    try:
        return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return None


def _number(record: dict[str, Any], key: str) -> float | None:
    value = record.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
