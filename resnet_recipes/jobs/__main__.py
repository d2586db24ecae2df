"""The program of a rank: `python -m resnet_recipes.jobs FOLDER` does the job in a folder."""

import sys
from importlib import import_module
from pathlib import Path

from resnet_recipes.jobs.rank import LaunchFacts, read_job, run_rank
from resnet_recipes.run_folder.lock import HeldFolder

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    name = read_job(folder).get("job", "train")
    run_job = import_module(f"resnet_recipes.jobs.{name}").run_job
    run_rank(HeldFolder(folder), run_job, LaunchFacts.read(folder))
