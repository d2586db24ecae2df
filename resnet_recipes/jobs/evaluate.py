"""Evaluate a network on several devices of this machine.

Start ranks as in training, and merge their results.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from resnet_recipes import data
from resnet_recipes.base.errors import ExitCode
from resnet_recipes.base.text import Say
from resnet_recipes.inference.trained import EvaluationResult, TrainedNetwork
from resnet_recipes.jobs.group import group_of
from resnet_recipes.jobs.rank import RankProcess, job_of, shown
from resnet_recipes.jobs.task import Task
from resnet_recipes.network.open import open_network
from resnet_recipes.recipe.frozen import read_sealed
from resnet_recipes.report.waiting import Waiting
from resnet_recipes.run_folder import CONFIG
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training import distributed
from resnet_recipes.training.outcomes import Outcomes


def evaluate(opened: TrainedNetwork, sizes: Sequence[int], say: Say) -> list[EvaluationResult]:
    """Evaluate at each size, in this process or one per device. Raises NotDoneError."""
    config, group = opened.recipe.data, group_of(opened.recipe.launch)
    with Waiting(f"fetching {config.root}", "MB") as waiting:
        data.local(config, waiting)  # what opens the images finds them here
    if group.ranks == 1:
        trained = opened.to_device()
        with Waiting("evaluating") as waiting:
            return [trained.with_size(size).evaluate(waiting) for size in sizes]
    assert opened.place is not None  # a network in memory stays in this process
    place = opened.place.absolute() if opened.place.exists() else opened.place
    job = {"place": str(place), "sizes": list(sizes)}
    task = Task("evaluate", "the evaluation did not finish", job)
    with task.run(opened.recipe, None, group, say) as folder:
        return [
            _merged([result_path(folder, number, rank) for rank in range(group.ranks)])
            for number in range(len(sizes))
        ]


def _merged(paths: Sequence[Path]) -> EvaluationResult:
    """Merge the results of all ranks: all have the same metrics, and each has its own images."""
    found = [torch.load(path, weights_only=True) for path in paths]
    return EvaluationResult(
        Metrics(*found[0]["metrics"]),
        max(one["seconds"] for one in found),
        found[0]["device"],
        Outcomes.interleave([Outcomes(*one["outcomes"]) for one in found]),
    )


def result_path(folder: Path, number: int, rank: int) -> Path:
    """Return where a rank writes its result at one size."""
    return folder / f"result{number}-rank{rank}.pt"


def work(process: RankProcess) -> int:
    """Evaluate a rank's part of the images at each size, and write what was found to files."""
    job, recipe = job_of(process.folder), read_sealed(process.folder / CONFIG)
    # first: kernels are tried on the current GPU
    distributed.join(distributed.read_rank(recipe.launch.device, process.launch.meeting))
    place = Path(job["place"])
    trained = TrainedNetwork(place, open_network(str(place), recipe.model), recipe).to_device()
    for number, size in enumerate(job["sizes"]):
        with shown(process, "evaluating") as progress:
            found = trained.with_size(size).evaluate(progress)
        content = {
            "metrics": list(found.metrics),
            "seconds": found.seconds,
            "device": found.device,
            "outcomes": list(found.outcomes),
        }
        torch.save(content, result_path(process.folder, number, process.rank))
    distributed.wait_for_ranks()
    distributed.leave()
    return ExitCode.DONE
