"""The console output of a run: a live display on a terminal, plain lines in a pipe."""

import shutil
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TextIO

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from resnet_recipes.base.text import (
    escape_controls,
    format_clock,
    format_epochs,
    format_number,
    format_percent,
    wrap_text,
)
from resnet_recipes.report.summary_text import describe_run, format_title
from resnet_recipes.report.terminal import is_live
from resnet_recipes.run_folder.facts import RunFacts
from resnet_recipes.run_folder.metrics import Metrics, StepMetrics
from resnet_recipes.run_folder.summary import Summary

#: Rows of the summary that contain a path or a command, which are not wrapped.
UNWRAPPED_ROWS = ("results", "weights", "curves", "predict")

#: Columns of the table of evaluations, with their widths.
COLUMNS = {
    "epoch": 6,
    "px": 5,
    "loss": 8,
    "top-1": 11,
    "top-5": 11,
    "third": 11,  # balanced accuracy, or raw weights
    "images/s": 10,
    "training": 10,
    "eval": 6,
}

#: Columns that a narrow terminal omits, in this order.
OPTIONAL_COLUMNS = ("eval", "images/s", "third", "top-5", "px")


def _wrap_row(label: str, text: str, width: int) -> list[str]:
    width = sys.maxsize if label in UNWRAPPED_ROWS else width
    return wrap_text(text, width, f"  {label:<12}", " " * 14, glue=r" (?=\d)")


def open_console(facts: RunFacts, err: TextIO) -> "Console":
    """Return the live display if the error stream can move its cursor, else plain lines."""
    console = LiveConsole if is_live(err) else PlainConsole
    return console(facts, err, sys.stdout)


class PlainConsole:
    """Prints a line for each event and, every few seconds, for a step; without color."""

    def __init__(self, facts: RunFacts, err: TextIO, out: TextIO, every: float = 10.0):
        """Write to `err`, the summary to `out`; steps at most every `every` seconds."""
        self._facts, self._err, self._out, self._every = facts, err, out, every
        self._last = float("-inf")

    def begin(self, done: int) -> None:
        """Print that training starts after `done` steps."""
        self._print_line(f"begin {self._format_progress(done)}")

    def show_step(self, progress: StepMetrics, seconds_left: float | None) -> None:
        """Print a logged step, unless the last line is too recent.

        The last step of a run is always printed.
        """
        now = time.monotonic()
        if now - self._last < self._every and progress.done < self._facts.total_steps:
            return
        self._last = now
        left = "" if seconds_left is None else f" eta_s={seconds_left:.0f}"
        rate = progress.images_per_second
        speed = f"{rate:.0f}" if rate >= 1000 else f"{rate:.4g}"
        self._print_line(
            f"{self._format_progress(progress.done)} px={progress.pixels} loss={progress.loss:.4g} "
            f"lr={progress.lr:.4g} img_s={speed} wait={progress.data_wait_share:.2f}{left}"
        )

    def show_done(self, done: int) -> None:
        """Print nothing: logged steps are printed."""

    def show_evaluation(
        self, done: int, averaged: Metrics | None, raw: Metrics | None, seconds: float
    ) -> None:
        metrics = "".join(
            "".join(
                f" {prefix}{name.replace('-', '')}={value:.2f}"
                for name, value in result.named.items()
                if name != "top-5" or self._facts.has_top5
            )
            + f" {prefix}loss={result.loss:.4f}"
            for prefix, result in (("", raw), ("ema_", averaged))
            if result is not None
        )
        self._print_line(
            f"eval {self._format_progress(done)}{metrics} images={(averaged or raw).examples} "
            f"eval_s={seconds:.1f}"
        )

    def show_evaluating(self, done: int, images: int, total: int) -> None:
        """Print nothing: the evaluation is printed when it is complete."""

    def show_note(self, text: str) -> None:
        self._print_line(f"note {text}")

    def show_stop(self, done: int, reason: str, fix: str) -> None:
        """Print why the run stops, and the command that resumes it."""
        more = f"; resume: {fix}" if fix else ""
        self._print_line(f"stopped {self._format_progress(done)} {reason}{more}")

    def show_result(self, summary: Summary) -> None:
        """Show the result on the output stream."""
        width = shutil.get_terminal_size((0, 0)).columns or sys.maxsize  # COLUMNS, if it is set
        page = ["", *wrap_text(format_title(summary), width, rest="    "), ""]
        for label, text in describe_run(summary, self._facts.shows_all_times):
            page += _wrap_row(label, text, width)
        print(*page, sep="\n", file=self._out, flush=True)

    def close(self) -> None:
        """Do nothing: printed lines need no cleanup."""

    def _format_progress(self, done: int) -> str:
        return f"step={done}/{self._facts.total_steps} ep={self._facts.epoch(done):.2f}"

    def _print_line(self, text: str) -> None:
        print(
            f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {escape_controls(text)}",
            file=self._err,
            flush=True,
        )


class LiveConsole:
    """Draws a bar and a line of figures below a table of evaluations."""

    def __init__(self, facts: RunFacts, err: TextIO, out: TextIO):
        """Display on `err`, a terminal; print the summary to `out`. NO_COLOR disables color."""
        self._facts = facts
        self._console = RichConsole(file=err, highlight=False)
        self._out = RichConsole(file=out, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)  # no thread
        self._drawn_at = float("-inf")
        self._ends_at: float | None = None  # estimated end of the run by time.monotonic()
        self._figures = Text("reading the first images", style="dim")  # second line of the display
        self._names: Sequence[str] = ()  # headings of the accuracy columns
        self._steps: list[StepMetrics] = []  # logged since the last evaluation

    def begin(self, done: int) -> None:
        """Start the display after `done` steps."""
        self._live.start()
        self._live.update(self._display(done, self._figures), refresh=True)

    def show_step(self, progress: StepMetrics, seconds_left: float | None) -> None:
        """Redraw the display, at most ten times a second."""
        self._steps.append(progress)
        figures = Text(f"{progress.pixels} px   loss {progress.loss:.3f}   lr {progress.lr:.4g}   ")
        figures.append(f"{format_number(progress.images_per_second)} images/s   ")
        figures.append(
            f"data wait {format_percent(progress.data_wait_share)}",
            style="yellow" if progress.data_wait_share > 0.1 else "",
        )
        self._figures = figures
        self._ends_at = None if seconds_left is None else time.monotonic() + seconds_left
        self._draw(progress.done, figures, 0.1)

    def show_done(self, done: int) -> None:
        """Redraw the bar after a step, at most once a second."""
        if not self._steps and self._ends_at is None:
            self._figures = Text("training", style="dim")
        self._draw(done, self._figures, 1.0)

    def show_evaluating(self, done: int, images: int, total: int) -> None:
        """Show that an evaluation has read `images` of `total`; redraw ten times a second."""
        text = Text(f"evaluating: {images:,} of {total:,} images")
        self._draw(done, text, 0.1 if images else 0.0)

    def _draw(self, done: int, figures: Text, every: float) -> None:
        """Redraw the display, at most every `every` seconds."""
        now = time.monotonic()
        if now - self._drawn_at > every:
            self._drawn_at = now
            self._live.update(self._display(done, figures), refresh=True)

    def show_evaluation(
        self, done: int, averaged: Metrics | None, raw: Metrics | None, seconds: float
    ) -> None:
        """Add a row to the table above the display."""
        of, best = ("EMA ", averaged) if averaged else ("", raw)
        values = {f"{of}top-1": best.top1, f"{of}top-5": best.top5, "balanced": best.balanced}
        if averaged and raw:
            values["raw top-1"] = raw.top1
        if not self._names:
            third = "balanced" if "balanced" in best.named else "raw top-1" if averaged else ""
            names = (f"{of}top-1", f"{of}top-5", third)
            self._names = names if self._facts.has_top5 else (names[0], third, "")
            heads = self._format_row(
                "epoch", "px", "loss", *self._names, "images/s", "training", "eval"
            )
            self._console.print(Text(heads, style="bold"))
        cells = [f"{values[name]:.2f}" if name in values else "" for name in self._names]
        steps = sum(progress.steps for progress in self._steps)
        before = after = ("", "")
        if steps:
            loss = sum(progress.loss * progress.steps for progress in self._steps) / steps
            speed = steps / sum(
                progress.steps / max(progress.images_per_second, 1e-9) for progress in self._steps
            )
            before = (str(self._steps[-1].pixels), f"{loss:.3f}")
            after = (format_number(speed), format_clock(self._steps[-1].training_seconds))
        self._steps.clear()
        self._live.update(self._display(done, self._figures))
        epoch = f"{self._facts.epoch(done):.2f}"
        self._console.print(
            Text(self._format_row(epoch, *before, *cells, *after, format_clock(seconds)))
        )

    def show_note(self, text: str) -> None:
        """Print a note above the display."""
        self._console.print(Text(f"note: {escape_controls(text)}", style="yellow"))

    def show_stop(self, done: int, reason: str, fix: str) -> None:
        """Remove the display; print why the run stops, and the command that resumes it."""
        self.close()
        text = f"stopped at epoch {self._facts.epoch(done):.2f}: {escape_controls(reason)}"
        self._console.print(Text(text, style="bold"), soft_wrap=True)
        if fix:
            self._console.print(Text(f"    resume: {escape_controls(fix)}"), soft_wrap=True)

    def show_result(self, summary: Summary) -> None:
        """Remove the display; show the result on the output stream."""
        self.close()
        head = "\n".join(wrap_text(format_title(summary), self._out.width, rest="    "))
        self._out.print("\n", Text(head, style="bold"), "\n", sep="", soft_wrap=True)
        for label, text in describe_run(summary, self._facts.shows_all_times):
            lines = Text("\n".join(_wrap_row(label, text, self._out.width)))
            lines.stylize("cyan", 0, 14)
            self._out.print(lines, soft_wrap=True)

    def close(self) -> None:
        """Remove the display and restore the cursor."""
        self._live.stop()

    def _display(self, done: int, figures: Text) -> Group:
        facts = self._facts
        head = Table.grid(padding=(0, 2), expand=True)
        for ratio in (None, 1, None, None):
            head.add_column(ratio=ratio, no_wrap=True)
        seconds_left = 0.0 if self._ends_at is None else self._ends_at - time.monotonic()
        left = f"{format_clock(seconds_left)} left" if seconds_left >= 0.5 else ""
        digits = 1 if facts.epochs >= 1 else 2
        head.add_row(
            f"epoch {facts.epoch(done):.{digits}f} of {format_epochs(facts.epochs)}",
            ProgressBar(facts.total_steps, done, finished_style="green"),
            f"{100 * done // facts.total_steps}%",
            left,
        )
        figures.no_wrap, figures.overflow = True, "ellipsis"
        return Group(head, figures)

    def _format_row(self, *cells: str) -> str:
        """Return a row of the table of evaluations, with the columns that fit the terminal."""
        columns = dict(zip(COLUMNS, cells, strict=True))
        for name in OPTIONAL_COLUMNS:
            if sum(map(COLUMNS.get, columns)) > self._console.width:
                del columns[name]
        return "".join(f"{cell:>{COLUMNS[name]}}" for name, cell in columns.items())


#: Shows a run: progress on the error stream, the summary on the output stream.
Console = PlainConsole | LiveConsole
