"""What a command tells the user while it works; stdout is for results."""

import sys
import time
from collections.abc import Callable

EVERY = 10.0  # seconds


def say(line: str) -> None:
    """Show a line to the user."""
    print(line, file=sys.stderr, flush=True)


def progress_printer() -> Callable[[str], None]:
    """Return a function that shows a line at most every ten seconds; the first waits as well."""
    last = time.monotonic()

    def say_now_and_then(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            say(line)

    return say_now_and_then
