"""The program of a rank: `python -m resnet_recipes.jobs FOLDER` does the task of a folder."""

import sys
from importlib import import_module
from pathlib import Path

from resnet_recipes.jobs.rank import LaunchFacts, read_task, run_rank
from resnet_recipes.run_folder.lock import HeldFolder

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    name = read_task(folder).get("task", "train")
    run_task = import_module(f"resnet_recipes.jobs.{name}").run_task
    run_rank(HeldFolder(folder), run_task, LaunchFacts.read(folder))
