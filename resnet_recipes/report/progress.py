"""Remaining time of a run, and progress of other work."""

import sys
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TextIO

from resnet_recipes.base.text import format_clock
from resnet_recipes.report.terminal import is_live
from resnet_recipes.run_folder.facts import RunFacts

if TYPE_CHECKING:
    from rich.live import Live

#: Weight of a new measurement in the running mean of the pace.
NEW_PACE_WEIGHT = 0.2


class ProgressLine(AbstractContextManager):
    """Shows progress and the remaining time when called; its bar is removed at the end."""

    def __init__(
        self, task: str, unit: str = "images", stream: TextIO | None = None, every: float = 10.0
    ):
        """Show `task` on a stream, stderr by default; in a pipe at most every `every` seconds."""
        self.task = task
        self._unit = unit
        self._stream = stream or sys.stderr
        self._live: Live | None = None  # display on a terminal; None without one
        self._every = 0.1 if is_live(self._stream) else every
        self._shown_at = time.monotonic()
        self._first: tuple[int, float] | None = None  # count and time of the first call

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` is done; work that restarts is timed again.

        A pipe gets no line before the first progress or at the end.
        """
        now = time.monotonic()
        if self._first is None or done < self._first[0]:
            self._first = (done, now)
        first, start = self._first
        if now - self._shown_at < self._every:
            return
        self._shown_at = now
        text = f"{done:,} of {total:,} {self._unit}"
        if done > first:
            text += f", {format_clock((now - start) / (done - first) * (total - done))} left"
        if is_live(self._stream):
            self._draw(done, total, text)
        elif first < done < total:
            self.say(f"{self.task}: {text}")

    def say(self, line: str) -> None:
        """Remove the bar, and show a line that stays."""
        self.__exit__()
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _draw(self, done: int, total: int, text: str) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        if self._live is None:
            console = Console(file=self._stream, highlight=False)
            self._live = Live(console=console, auto_refresh=False, transient=True)
        row = Table.grid(padding=(0, 2), expand=True)
        for ratio in (None, 1, None):
            row.add_column(ratio=ratio, no_wrap=True)
        row.add_row(self.task, ProgressBar(total, done, finished_style="green"), text)
        self._live.start()
        self._live.update(row, refresh=True)


class Pace:
    """A running mean of the seconds per PFLOP of training."""

    def __init__(self, facts: RunFacts):
        self._facts = facts
        self._seconds: float | None = None
        self._is_settled = False
        self._evaluation: float | None = None  # seconds of the last evaluation

    def observe(self, done: int, seconds_per_step: float, is_settled: bool) -> None:
        """Add a logged interval that ends after `done` steps.

        `is_settled`: the interval has one image size and is not the first at this size.
        """
        new = seconds_per_step / (self._facts.pflops(done) - self._facts.pflops(done - 1))
        if is_settled and self._is_settled and self._seconds is not None:
            self._seconds += NEW_PACE_WEIGHT * (new - self._seconds)
        elif is_settled or not self._is_settled:
            self._seconds, self._is_settled = new, is_settled

    def add_evaluation(self, seconds: float) -> None:
        """Add the seconds of an evaluation."""
        self._evaluation = seconds

    def seconds_left(self, done: int) -> float | None:
        """Estimate the seconds until the end, with the evaluation that follows this step.

        Before the first evaluation, evaluating is assumed to be as fast as training. None before
        the first measurement.
        """
        facts, evaluation = self._facts, self._evaluation
        if self._seconds is None:
            return None
        if evaluation is None:
            evaluation = self._seconds * facts.evaluation_pflops
        pflops_left = facts.pflops(facts.total_steps) - facts.pflops(done)
        return evaluation * facts.evaluations.count(done - 1) + self._seconds * pflops_left
