"""A launcher with stand-in ranks in a separate process: `python -m launcher RUN RANKS`."""

import sys
from pathlib import Path

from resnet_recipes.jobs import group
from resnet_recipes.jobs import launcher as launching
from resnet_recipes.run_folder.lock import LockedFolder


def say(text: str) -> None:
    """Show a line to the user."""
    print(text, file=sys.stderr)


if __name__ == "__main__":
    folder, ranks = sys.argv[1:]
    group.PROGRAM, launching.AFTERMATH = "stand_in", 1
    sys.exit(launching.start(LockedFolder(Path(folder)), group.Group(int(ranks)), say).code)
