"""What a command tells the user while it works; stdout is for results."""

import sys


def say(line: str) -> None:
    """Show a line to the user."""
    print(line, file=sys.stderr, flush=True)
