"""Control sequences for terminals, shared by the processes that write to one."""

import os
from typing import TextIO

from resnet_recipes.base.text import printable

#: Lines of the live display; the cursor rests at the end of the last.
HEIGHT = 2

#: Written on behalf of a process that was killed before it could write it.
SHOW_CURSOR = "\x1b[?25h"


def is_live(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can move its cursor, as a live display does."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def interjection(text: str) -> str:
    """Return a line so that a process can print it over another process's live display.

    It replaces the display and leaves room below, which the display fills when it is drawn next.
    """
    return f"\r\x1b[{HEIGHT - 1}A\x1b[J{printable(text)}" + "\n" * (HEIGHT - 1)
