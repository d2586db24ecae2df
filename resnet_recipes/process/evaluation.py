"""The entry point of a rank that evaluates.

It evaluates its part of the images and writes its results to a file.
"""

import json
import sys
from pathlib import Path

import torch

from resnet_recipes.base.errors import ExitCode
from resnet_recipes.network.load import load
from resnet_recipes.process.rank_process import RankProcess, run_rank, shown
from resnet_recipes.recipe.frozen import read
from resnet_recipes.training import distributed
from resnet_recipes.training.trained import Trained

#: The recipe to evaluate with, and {"place": the network, "sizes": pixels}; both are files in the
#: ranks' folder.
RECIPE, JOB = "evaluation.yaml", "job.json"


def result_path(folder: Path, number: int, rank: int) -> Path:
    """Return where a rank writes its result at one size."""
    return folder / f"result{number}-rank{rank}.pt"


def work(process: RankProcess) -> int:
    """Evaluate this rank's part at each size."""
    job = json.loads((process.folder / JOB).read_text())
    place = Path(job["place"])
    recipe = read(process.folder / RECIPE)
    # first: kernels are tried on the current GPU
    distributed.join(distributed.this_rank(recipe.launch.device))
    trained = Trained.on_device(place, load(place), recipe)
    for number, size in enumerate(job["sizes"]):
        with shown(process, "evaluating") as progress:
            found = trained.at_size(size).evaluated(progress)
        content = {
            "metrics": list(found.metrics),
            "seconds": found.seconds,
            "device": found.device,
            "outcomes": list(found.outcomes),
        }
        torch.save(content, result_path(process.folder, number, process.rank))
    distributed.meet()
    distributed.leave()
    return ExitCode.DONE


if __name__ == "__main__":
    run_rank(Path(sys.argv[1]), work)
