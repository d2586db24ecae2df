"""The record of a run: metrics.jsonl during the run, summary.json at its end."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from resnet_recipes.base import atomic
from resnet_recipes.report.progress import Pace
from resnet_recipes.report.trackers import BackgroundTracker
from resnet_recipes.report.trackers.base import make_scalars
from resnet_recipes.run_folder import METRICS, SUMMARY
from resnet_recipes.run_folder.correct_images import CorrectImages
from resnet_recipes.run_folder.facts import RunFacts
from resnet_recipes.run_folder.metrics import (
    Metrics,
    Record,
    StepMetrics,
    append_record,
    format_record,
    read_metrics,
    replace_nonfinite,
)
from resnet_recipes.run_folder.summary import Summary, WeightFiles, find_intervals, summarize

if TYPE_CHECKING:
    from resnet_recipes.report.console import Console


class Evaluation(NamedTuple):
    """The accuracies of the averaged and the raw weights; None if not evaluated."""

    averaged: Metrics | None
    raw: Metrics | None


class Recorder:
    """Writes and displays the measurements of the training loop, on rank 0.

    A full disk is reported once and does not stop training. All values are plain numbers, so
    nothing here waits for a device.
    """

    def __init__(
        self,
        facts: RunFacts,
        console: "Console",
        started_at: float | None = None,
        trackers: Sequence[BackgroundTracker] = (),
        on_record: Callable[[Record], None] | None = None,
    ):
        """Record into the run folder.

        `started_at` is the start of the command by time.monotonic(). `trackers` receive every point
        of the run's curves, and `on_record` every record.
        """
        self._folder = facts.folder
        self._path = self._folder / METRICS
        self._facts = facts
        self.console = console
        self._started_at = time.monotonic() if started_at is None else started_at
        self._earlier_wall_seconds = 0.0  # wall seconds of earlier sessions
        self._records: list[Record] = []
        self._pace = Pace(facts)
        self._is_writable = True
        self._trackers = trackers
        self._on_record = on_record
        self._is_finished = False

    def begin(
        self, done: int = 0, seconds: float = 0.0, has_pending_evaluation: bool = False
    ) -> None:
        """Start the session, before its first step.

        Deletes the records of earlier sessions after step `done`, and the evaluation at `done` if
        it must be repeated.
        """
        old = read_metrics(self._path)
        self._earlier_wall_seconds = max(
            (float(record.get("wall_seconds", 0.0)) for record in old), default=0.0
        )
        pending = ("evaluation", done) if has_pending_evaluation else None
        self._records = [
            record
            for record in old
            if record["step"] <= done and (record["kind"], record["step"]) != pending
        ]
        if old:
            text = "".join(map(format_record, self._records))
            self._try_to_write(lambda: atomic.write_text(self._path, text))
        self.console.begin(done)
        for tracker in self._trackers:
            tracker.begin(done)
        self._add(
            "begin",
            done,
            startup_seconds=time.monotonic() - self._started_at,
            time=time.time(),
            training_seconds=seconds,
            epochs=self._facts.epochs,
            devices=self._facts.devices,
            price_per_hour=self._facts.price_per_hour,
        )

    def log_step(self, progress: StepMetrics) -> None:
        """Log a step with the measurements since the last logged step."""
        done = progress.done
        record = progress.to_record()
        step = {"kind": "step", "step": done, **record}
        for interval in find_intervals([self._find_latest("begin", "step"), step]):
            if interval.steps:
                seconds = interval.seconds / interval.steps
                self._pace.observe(done, seconds, interval.is_settled)
        seconds_left = self._pace.seconds_left(done)
        self._add("step", done, **record, seconds_left=seconds_left)
        if done % self._facts.steps_per_epoch == 0:
            self._end_epoch(done, progress.training_seconds)
        self.console.show_step(progress, seconds_left)

    def log_evaluation(
        self,
        done: int,
        *,
        averaged: Metrics | None,
        raw: Metrics | None,
        seconds: float,
        raw_seconds: float = 0.0,
        is_best: bool = False,
    ) -> None:
        """Log an evaluation of the averaged weights, the raw weights, or both.

        It took `seconds`, including `raw_seconds` for the raw weights, after the averaged weights.
        """
        values: Record = {
            "examples": (averaged or raw).examples,
            "seconds": seconds,
            "raw_seconds": raw_seconds,
        }
        if is_best:
            values["is_best"] = True
        for name, metrics in (("raw", raw), ("ema", averaged)):
            if metrics is not None:
                values |= metrics.to_record(name)
        self._add("evaluation", done, **values)
        self._pace.add_evaluation(seconds)
        self.console.show_evaluation(done, averaged, raw, seconds)

    def write_correct_images(self, correct: CorrectImages) -> None:
        """Write which validation images the final network classifies correctly."""
        self._try_to_write(lambda: correct.write(self._folder))

    @property
    def last_evaluation(self) -> "Evaluation":
        """Accuracies in the last evaluation; None for weights that it did not evaluate."""
        last = self._find_latest("evaluation")
        return Evaluation(Metrics.of(last, "ema"), Metrics.of(last, "raw"))

    def log_checkpoint(self, done: int, path: Path, seconds: float) -> None:
        """Log a checkpoint that paused training for `seconds`."""
        self._add("saved", done, path=str(path), seconds=seconds)

    def log_compilation(self, done: int, seconds: float) -> None:
        """Log that compilation and cuDNN searches took `seconds` of training."""
        self._add("compiled", done, seconds=seconds)

    def log_note(self, done: int, text: str) -> None:
        """Log and show a sentence."""
        self._add("note", done, text=text)
        self.console.show_note(text)

    def log_stop(self, done: int, reason: str, fix: str) -> None:
        """Log and show that the run stops early, with the reason and the command to resume it."""
        self._add("stopped", done, reason=reason)
        self.console.show_stop(done, reason, fix)

    def finish(self, done: int, seconds: float, files: WeightFiles) -> Summary:
        """Log the end of the run, show the summary, and write it.

        `seconds` are the training seconds of the complete run. Raises OSError if the summary cannot
        be written.
        """
        self._is_finished = True
        self._add("finish", done, training_seconds=seconds)
        summary = summarize(self._records, self._facts, seconds, files)
        text = json.dumps(replace_nonfinite(summary.as_json()), indent=2) + "\n"
        self.console.show_result(summary)
        atomic.write_text(self._folder / SUMMARY, text)
        return summary

    def close(self) -> None:
        """Restore the terminal and let trackers finish.

        Safe to call twice, and after `finish` or `log_stop`.
        """
        trackers, self._trackers = self._trackers, ()
        for tracker in trackers:
            tracker.end(self._is_finished)
        ended_at = time.monotonic()
        for tracker in trackers:
            tracker.wait(self.console.show_note, ended_at)
            self._show_failures(tracker)
        self.console.close()

    def _end_epoch(self, done: int, seconds: float) -> None:
        """Log the training seconds of the epoch that ends now, if its start was recorded."""
        start = done - self._facts.steps_per_epoch
        starts = (
            record
            for record in reversed(self._records)
            if record["step"] == start and record["kind"] in ("begin", "epoch")
        )
        if begin := next(starts, None):
            self._add(
                "epoch", done, seconds=seconds - begin["training_seconds"], training_seconds=seconds
            )

    def _find_latest(self, *kinds: str) -> Record:
        return next((record for record in reversed(self._records) if record["kind"] in kinds), {})

    def _add(self, kind: str, done: int, **values: object) -> None:
        wall = self._earlier_wall_seconds + time.monotonic() - self._started_at
        epoch = round(self._facts.epoch(done), 4)
        record: Record = {
            "kind": kind,
            "step": done,
            "epoch": epoch,
            **values,
            "wall_seconds": wall,
        }
        self._records.append(record)
        self._try_to_write(lambda: append_record(self._path, record))
        if self._on_record is not None:
            self._on_record(record)
        values = make_scalars(record)
        for tracker in self._trackers:
            if values:
                tracker.scalars(done, values)
            self._show_failures(tracker)

    def _show_failures(self, tracker: BackgroundTracker) -> None:
        for failure in tracker.take_failures():
            self.console.show_note(failure)

    def _try_to_write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            if self._is_writable:
                self._is_writable = False
                self.console.show_note(
                    f"cannot write results to {self._folder}: {error.strerror}; training continues"
                )
