"""Evaluate a network on several devices of this machine.

Starts ranks as in training, and merges their results.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from resnet_recipes import data
from resnet_recipes.base.errors import ExitCode
from resnet_recipes.base.text import Say
from resnet_recipes.inference.trained_network import EvaluationResult, TrainedNetwork
from resnet_recipes.jobs.ranks.group import make_group
from resnet_recipes.jobs.ranks.rank import RankProcess, read_task, show_progress
from resnet_recipes.jobs.task import Task
from resnet_recipes.network.open import open_network
from resnet_recipes.recipe import frozen_recipe
from resnet_recipes.report.progress import ProgressLine
from resnet_recipes.run_folder import CONFIG
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training import distributed
from resnet_recipes.training.outcomes import Outcomes


def evaluate(network: TrainedNetwork, sizes: Sequence[int], say: Say) -> list[EvaluationResult]:
    """Evaluate at each size, in this process or in one per device.

    Raises NotDoneError if such a process fails or is stopped.
    """
    config = network.recipe.data
    group = make_group(network.recipe.launch)
    with ProgressLine(f"fetching {config.root}", "MB") as show:
        data.fetch(config, show)  # later opens find the images here
    if group.ranks == 1:
        trained = network.to_device()
        with ProgressLine("evaluating") as show:
            return [trained.with_size(size).evaluate(show) for size in sizes]
    assert network.path is not None  # a network in memory stays in this process
    path = network.path.absolute() if network.path.exists() else network.path
    values = {"path": str(path), "sizes": list(sizes)}
    task = Task(run_task, "the evaluation did not finish", values)
    with task.run(network.recipe, None, group, say) as folder:
        return [
            _merge_results([get_result_path(folder, number, rank) for rank in range(group.ranks)])
            for number in range(len(sizes))
        ]


def _merge_results(paths: Sequence[Path]) -> EvaluationResult:
    """Merge the results of all ranks: they share the metrics, and each has its own images."""
    results = [torch.load(path, weights_only=True) for path in paths]
    return EvaluationResult(
        Metrics(*results[0]["metrics"]),
        max(result["seconds"] for result in results),
        results[0]["device"],
        Outcomes.interleave([Outcomes(*result["outcomes"]) for result in results]),
    )


def get_result_path(folder: Path, number: int, rank: int) -> Path:
    """Return the file of a rank's result at one size."""
    return folder / f"result{number}-rank{rank}.pt"


def run_task(process: RankProcess) -> int:
    """Evaluate a rank's part of the images at each size and write the results to files."""
    task = read_task(process.folder)
    recipe = frozen_recipe.read(process.folder / CONFIG)
    # this comes first, because kernels are compared on the current GPU
    distributed.join_group(distributed.read_rank(recipe.launch.device, process.launch.store_path))
    path = Path(task["path"])
    trained = TrainedNetwork(path, open_network(str(path), recipe.model), recipe).to_device()
    for number, size in enumerate(task["sizes"]):
        with show_progress(process, "evaluating") as progress:
            result = trained.with_size(size).evaluate(progress)
        content = {
            "metrics": list(result.metrics),
            "seconds": result.seconds,
            "device": result.device,
            "outcomes": list(result.outcomes),
        }
        torch.save(content, get_result_path(process.folder, number, process.rank))
    distributed.wait_for_ranks()
    distributed.leave_group()
    return ExitCode.DONE
