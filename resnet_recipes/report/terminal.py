"""What a terminal receives besides text, whichever process writes to it."""

import os
from typing import TextIO

#: Lines of the live display; the cursor rests at the end of the last.
HEIGHT = 2

#: For a process that was killed before it could.
SHOW_CURSOR = "\x1b[?25h"


def is_live(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal that can move its cursor, so that a run on it has a live display."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def interjection(text: str, stream: TextIO) -> str:
    """Return `text` as a process writes it, with an end of line, over the live display of another one.

    It takes the place of the display and leaves room below, which the display takes for itself when it is drawn next.
    """
    if not is_live(stream):
        return text
    return f"\r\x1b[{HEIGHT - 1}A\x1b[J{text}" + "\n" * (HEIGHT - 1)
