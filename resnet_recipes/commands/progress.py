"""Progress on stderr, at most one line every ten seconds."""

import sys
import time
from collections.abc import Callable

EVERY = 10.0          # seconds


def progress_printer() -> Callable[[str], None]:
    """Return a function that prints a line, unless the last one is too recent; the first waits as well."""
    last = time.monotonic()

    def say(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            print(line, file=sys.stderr)

    return say
