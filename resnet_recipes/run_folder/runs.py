"""Read runs from their folders: state, changes, progress, accuracy and time."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from resnet_recipes.base.errors import REJECTED_CODES, STOPPED_CODES, NotReadyError
from resnet_recipes.base.money import compute_cost
from resnet_recipes.base.names import find_short_name
from resnet_recipes.base.reading import make_read_error, read_bytes, read_json
from resnet_recipes.run_folder import (
    ALL_CHECKPOINTS,
    CHECKPOINTS,
    CONFIG,
    DATA,
    ENVIRONMENT,
    EXIT,
    LOGS,
    METRICS,
    OVERRIDES,
    PROVENANCE,
    SUMMARY,
)
from resnet_recipes.run_folder.ending import RESUME_SETTINGS, format_resume
from resnet_recipes.run_folder.lock import is_running
from resnet_recipes.run_folder.metrics import read_last_records

STATES = ("finished", "running", "stopped", "failed", "killed", "prepared", "unreadable")

#: Percentage points of top-1. If the EMA weights are further behind the raw weights, the EMA
#: half-life is too long.
MAX_POINTS_BEHIND = 1.0

#: Settings shown in other columns: the name, folder and epochs of a run.
_OMITTED_PREFIXES = ("run.", "max_duration=", "scale_schedule_ratio=")

#: Types of the facts about images that reports read.
_IMAGE_FACTS: dict[str, type] = {
    "train_examples": int,
    "eval_examples": int,
    "train_digest": str,
    "eval_digest": str,
    "classes": list,
}

#: Times of a finished run, with their keys in its summary.
_CLOCK_KEYS = {
    "minutes": "training_seconds",
    "minutes_steady_state": "steady_state_seconds",
    "minutes_mlperf": "mlperf_seconds",
    "wall_minutes": "wall_seconds",
}


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run folder; values that were not recorded are None or empty."""

    folder: Path
    recipe: str = ""
    state: str  # one of STATES
    changes: tuple[str, ...] = ()  # settings from the command line, as key=value
    extends: str = ""  # the run, and step, whose stable phase this run continues
    epochs: float | None = None  # planned epochs
    epochs_done: float = 0.0
    top1_percent: float | None = None  # final weights: EMA if the recipe uses it
    raw_top1_percent: float | None = None  # raw weights, without EMA
    top1_epoch: float | None = None  # epoch of the last evaluation
    best_top1_percent: float | None = None  # best of several evaluations; see Summary.best
    best_epoch: float | None = None
    has_best_weights: bool = False  # whether checkpoint.best saved the best weights
    pflops: float | None = None  # training compute, forward and backward
    minutes: float | None = None  # training time, without evaluation and checkpoints
    minutes_steady_state: float | None = None  # training time, epoch 1 with the time of epoch 2
    minutes_mlperf: float | None = None  # first data access to the end of the last evaluation
    wall_minutes: float | None = None
    price_per_hour: float | None = None  # `launch.price`
    devices: str = ""
    resumable: bool = False
    resume_settings: str = ""  # settings that resuming needs, after a space
    reason: str = ""  # why the run failed, stopped or cannot be read

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def resume(self) -> str:
        """The command that resumes the run."""
        return format_resume(self.folder, self.resume_settings)

    @property
    def progress(self) -> str:
        """The epochs done: "epoch 3.93 of 5"."""
        total = "" if self.epochs is None else f" of {self.epochs:.4g}"
        return f"epoch {self.epochs_done:.2f}{total}"

    @property
    def better_raw(self) -> float | None:
        """Accuracy of the raw weights if the EMA weights are so far behind that raw is better."""
        top1, raw = self.top1_percent, self.raw_top1_percent
        return (
            raw if top1 is not None and raw is not None and raw - top1 > MAX_POINTS_BEHIND else None
        )

    @property
    def shown_changes(self) -> tuple[str, ...]:
        """Settings from the command line, except the run's name, folder and epochs."""
        return tuple(
            re.sub(r"^[\w.]+(?==)", lambda key: find_short_name(key[0]), change)
            for change in self.changes
            if not change.startswith(_OMITTED_PREFIXES)
        )

    @property
    def shown_reason(self) -> str:
        """The first line of `reason`."""
        return self.reason.partition("\n")[0]

    def cost(self, price: float | None = None) -> float | None:
        """Return the cost of the wall time at `price` per hour, by default the run's own.

        None if time or price are unknown.
        """
        price = self.price_per_hour if price is None else price
        if self.wall_minutes is None or price is None:
            return None
        return compute_cost(60 * self.wall_minutes, price)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON and CSV."""
        plain = {"folder": str(self.folder), "changes": list(self.changes)}
        return {"name": self.name, **vars(self), **plain}


def find_shared_changes(runs: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return the command-line settings that all readable runs share."""
    changes = [run.shown_changes for run in runs if run.state != "unreadable"]
    counts = Counter(chain(*changes))
    return tuple(text for text, count in counts.items() if count == len(changes))


def iterate_runs(root: Path) -> Iterator[RunRecord]:
    """Yield the runs directly below `root`, by name; other files and folders are skipped."""
    yield from filter(None, map(read_run, sorted(_list_folders(root))))


def iterate_newest_runs(root: Path) -> Iterator[Path]:
    """Yield the run folders directly below `root`, the most recently created first.

    A copy keeps its recorded time of creation; only runs of the same time are ordered by file time.
    """

    def find_time(folder: Path) -> tuple[str, float]:
        environment: dict[str, Any] = {}
        with suppress(NotReadyError):
            environment = read_json(folder / ENVIRONMENT, may_be_absent=True)
        return str(environment.get("created", "")), (folder / OVERRIDES).stat().st_mtime

    return iter(sorted(_list_folders(root), key=find_time, reverse=True))


def _list_folders(root: Path) -> list[Path]:
    """Return the run folders directly below `root`, without the drafts of killed processes."""
    return [overrides.parent for overrides in root.glob(f"[!.]*/{OVERRIDES}")]


def read_run(folder: Path) -> RunRecord | None:
    """Read a run folder; None if it is not a run folder. Reads a few small files.

    A run with damaged or forged files has the state "unreadable".
    """
    if not os.path.lexists(folder / OVERRIDES):
        return None
    try:
        changes = tuple(read_bytes(folder / OVERRIDES).decode(errors="replace").splitlines())
        if not (folder / CONFIG).is_file():
            raise ValueError(f"{CONFIG} does not exist")
        summary = read_json(folder / SUMMARY, may_be_absent=True)
        origin = read_json(folder / PROVENANCE, may_be_absent=True)
        values = _read_finished(summary) if summary else _read_unfinished(folder, origin)
        extends = _get_text(origin, "extends")
        return RunRecord(folder=folder, changes=changes, extends=extends, **values)
    except NotReadyError as error:
        problem = error.problems[0]
        why = problem.about(Path(problem.key).name)
        return RunRecord(folder=folder, state="unreadable", reason=why)
    except (OSError, ValueError) as error:
        return RunRecord(folder=folder, state="unreadable", reason=str(error))


def _read_finished(summary: dict[str, Any]) -> dict[str, Any]:
    epochs = _get_number(summary, "epochs")
    return {
        "state": "finished",
        "recipe": _get_text(summary, "recipe"),
        "epochs": epochs,
        "epochs_done": epochs or 0.0,
        **_read_top1(summary),
        "top1_epoch": epochs,
        **{key: _get_number(summary, key) for key in ("best_top1_percent", "best_epoch")},
        "has_best_weights": bool(summary.get("best_weights")),
        "pflops": _get_number(summary, "training_pflops"),
        "price_per_hour": _get_number(summary, "price_per_hour"),
        **{name: _get_minutes(summary, key) for name, key in _CLOCK_KEYS.items()},
        "devices": _get_text(summary, "devices"),
    }


def _read_unfinished(folder: Path, origin: dict[str, Any]) -> dict[str, Any]:
    ending = read_json(folder / EXIT, may_be_absent=True)
    records = read_last_records(folder / METRICS)
    state = _find_state(folder, ending, "begin" in records)
    settings = RESUME_SETTINGS.get(_get_text(ending, "error"), "") if state == "failed" else ""
    begin, step, evaluation, last = (
        records.get(kind, {}) for kind in ("begin", "step", "evaluation", "any")
    )
    return {
        "state": state,
        "recipe": _get_text(origin, "recipe"),
        "epochs": _get_number(begin or origin, "epochs"),
        "epochs_done": _get_number(last, "epoch") or 0.0,
        **_read_top1(evaluation),
        "top1_epoch": _get_number(evaluation, "epoch"),
        "minutes": _get_minutes(step, "training_seconds"),
        "wall_minutes": _get_minutes(last, "wall_seconds"),
        "price_per_hour": _get_number(begin, "price_per_hour"),
        "devices": _get_text(begin, "devices"),
        "resumable": state != "running"
        and settings is not None
        and _has_start(folder, ending, has_saved="saved" in records),
        "resume_settings": settings or "",
        "reason": _get_text(ending, "message") if state != "running" else "",
    }


def _has_start(folder: Path, ending: dict[str, Any], has_saved: bool) -> bool:
    """Return whether a run has a complete checkpoint, or none yet and can start from zero."""
    codes = (*REJECTED_CODES, *(STOPPED_CODES if has_saved else ()))
    has_none = not any((folder / CHECKPOINTS).glob(f"{ALL_CHECKPOINTS}.json"))
    return bool(list_checkpoints(folder)) or (has_none and ending.get("code") not in codes)


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first, without those of a wrong size."""
    checkpoints = list[Path]()
    for manifest in sorted((folder / CHECKPOINTS).glob(f"{ALL_CHECKPOINTS}.json")):
        with suppress(NotReadyError, OSError):
            file = manifest.with_suffix(".pt")
            checkpoints += [file] * (read_json(manifest).get("bytes") == file.stat().st_size)
    return checkpoints


def can_resume(folder: Path) -> bool:
    """Return whether a folder is a run that is not finished and can be resumed."""
    run = read_run(folder)
    return bool(run and run.resumable and not (folder / SUMMARY).exists())


def read_image_facts(folder: Path) -> dict[str, Any]:
    """Return the recorded facts about the images of a run; empty if there is no file.

    Raises NotReadyError if the file cannot be read or a value has another type.
    """
    facts = read_json(folder / DATA, may_be_absent=True)
    for key, value_type in _IMAGE_FACTS.items():
        if type(facts.get(key, value_type())) is not value_type:
            raise make_read_error(folder / DATA, ValueError(f"its {key} has another type"))
    return facts


def _read_top1(record: Mapping[str, Any]) -> dict[str, float | None]:
    ema, raw = (_get_number(record, f"{name}_top1_percent") for name in ("ema", "raw"))
    return {"top1_percent": raw if ema is None else ema, "raw_top1_percent": raw}


def _find_state(folder: Path, ending: dict[str, Any], has_begun: bool) -> str:
    if is_running(folder):
        return "running"
    if not ending:
        was_started = has_begun or os.path.lexists(folder / LOGS)
        return "killed" if was_started else "prepared"
    return "stopped" if ending.get("code") in STOPPED_CODES else "failed"


def _get_minutes(record: Mapping[str, Any], key: str) -> float | None:
    seconds = _get_number(record, key)
    return None if seconds is None else seconds / 60


def _get_number(record: Mapping[str, Any], key: str) -> float | None:
    value = record.get(key)
    if value is not None and type(value) not in (int, float):
        raise ValueError(f"its {key} is not a number")
    return None if value is None else float(value)


def _get_text(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"its {key} is not text")
    return value
