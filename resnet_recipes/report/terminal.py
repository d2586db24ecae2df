"""Control sequences for terminals, and standard streams that outlive their reader.

A closed pipe or a full disk must not end a run.
"""

import io
import os
import sys
from typing import Any, TextIO

from resnet_recipes.base.text import escape_controls

#: Lines of the live display; the cursor rests at the end of the last.
DISPLAY_LINES = 2

#: Written by the parent if a process was killed before it could.
SHOW_CURSOR = "\x1b[?25h"


def is_live(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can move its cursor, as a live display does."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def format_interjection(text: str) -> str:
    """Return a line so that a process can print it over the live display of another.

    It replaces the display and leaves empty lines below, where the display is drawn next.
    """
    return f"\r\x1b[{DISPLAY_LINES - 1}A\x1b[J{escape_controls(text)}" + "\n" * (DISPLAY_LINES - 1)


class Output(io.FileIO):
    """A file that ignores failed writes and keeps the first failure."""

    failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failure = self.failure or error
            return len(data)


def make_lasting(descriptor: int, encoding: str) -> TextIO:
    """Return a text stream whose writes never fail: it escapes or drops text instead."""
    raw = io.BufferedWriter(Output(descriptor, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding, errors="backslashreplace", line_buffering=True)


def protect_output() -> None:
    """Replace stdout and stderr by streams whose writes never fail, or /dev/null if closed."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            _open_null()  # gets the lowest free number: this one
    # a library may have opened a file with the descriptor of a closed stream
    sys.stdout, sys.stderr = (
        make_lasting(
            number if stream else _open_null(), getattr(stream, "encoding", None) or "utf-8"
        )
        for number, stream in ((1, sys.stdout), (2, sys.stderr))
    )


def _open_null() -> int:
    return os.open(os.devnull, os.O_RDWR)


def find_lost_output() -> str:
    """Return why output to stdout was lost; empty if it was not, or if the reader closed it."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    failure = raw.failure if isinstance(raw, Output) else None
    return "" if failure is None or isinstance(failure, BrokenPipeError) else str(failure.strerror)
