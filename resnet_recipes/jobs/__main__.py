"""The program of a rank: `python -m resnet_recipes.jobs FOLDER` does the job of a folder."""

import sys
from importlib import import_module
from pathlib import Path

from resnet_recipes.jobs.rank import LaunchFacts, job_of, run_rank

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    name = job_of(folder).get("job", "train")
    work = import_module(f"resnet_recipes.jobs.{name}").work
    run_rank(folder, work, LaunchFacts.read(folder))
