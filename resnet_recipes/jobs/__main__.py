"""The program of a rank: `python -m resnet_recipes.jobs FOLDER` does the task of a folder."""

import sys
from pathlib import Path

from resnet_recipes.jobs.ranks.rank import LaunchFacts, import_task, run_rank
from resnet_recipes.run_folder.lock import HeldFolder

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    run_rank(HeldFolder(folder), import_task(folder), LaunchFacts.read(folder))
