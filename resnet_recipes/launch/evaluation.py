"""Evaluate a network on several devices of this machine.

Start ranks as in training, and merge their results.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from resnet_recipes import data
from resnet_recipes.base.errors import ExitCode
from resnet_recipes.launch.group import EVALUATE, Group, group_of
from resnet_recipes.launch.start import started
from resnet_recipes.launch.trained import Opened
from resnet_recipes.process.evaluation import JOB, RECIPE, result_path
from resnet_recipes.recipe.frozen import freeze
from resnet_recipes.report.facts import Metrics
from resnet_recipes.report.waiting import Waiting
from resnet_recipes.training.outcomes import Outcomes
from resnet_recipes.training.trained import Evaluated


def evaluate(
    opened: Opened, sizes: Sequence[int], say: Callable[[str], None]
) -> tuple[int, list[Evaluated]]:
    """Evaluate at each size, in this process or one per device.

    Return the exit code, and the results if it is 0.
    """
    config, group = opened.recipe.data, group_of(opened.recipe.launch)
    with Waiting(f"fetching {config.root}", "MB") as waiting:
        data.local(config, waiting)  # what opens the images finds them here
    if group.ranks > 1:
        return _by_ranks(opened, sizes, replace(group, program=EVALUATE), say)
    trained = opened.on_device()
    with Waiting("evaluating") as waiting:
        return ExitCode.DONE, [trained.at_size(size).evaluated(waiting) for size in sizes]


def _by_ranks(
    opened: Opened, sizes: Sequence[int], group: Group, say: Callable[[str], None]
) -> tuple[int, list[Evaluated]]:
    job = json.dumps({"place": str(opened.place.absolute()), "sizes": list(sizes)})
    with started({RECIPE: freeze(opened.recipe), JOB: job}, group, say) as (folder, ending):
        numbers = () if ending.code else range(len(sizes))
        return ending.code, [
            _merged([result_path(folder, number, rank) for rank in range(group.ranks)])
            for number in numbers
        ]


def _merged(paths: Sequence[Path]) -> Evaluated:
    """Merge the results of all ranks: all have the same metrics, and each has its own images."""
    found = [torch.load(path, weights_only=True) for path in paths]
    return Evaluated(
        Metrics(*found[0]["metrics"]),
        max(one["seconds"] for one in found),
        found[0]["device"],
        Outcomes.interleaved([Outcomes(*one["outcomes"]) for one in found]),
    )
