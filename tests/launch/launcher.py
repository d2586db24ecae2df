"""A launcher of the stand-in as a separate process: `python -m launcher RUN RANKS [NODES HOST:PORT]`."""

import sys
from pathlib import Path

from resnet_recipes.launch import group
from resnet_recipes.launch import start as launching


def say(text: str) -> None:
    """Show a line to the user."""
    print(text, file=sys.stderr)


if __name__ == "__main__":
    folder, ranks, *place = sys.argv[1:]
    group.TRAIN, launching.AFTERMATH = "stand_in", 1
    nodes, rdzv = place or ("1", "")
    sys.exit(launching.start(Path(folder), group.Group(int(ranks), int(nodes), rdzv), say).code)
