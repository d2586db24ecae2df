"""What a command tells the user while it works; stdout is for results."""

import sys

from resnet_recipes.base.text import printable


def say(text: str) -> None:
    """Show lines to the user; no name in them acts on the terminal."""
    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)
