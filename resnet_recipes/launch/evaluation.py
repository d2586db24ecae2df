"""Evaluate a network on several devices of this machine: start ranks as in training, and merge their results."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.launch.group import EVALUATE, Group
from resnet_recipes.launch.start import started
from resnet_recipes.process.ending import Ending
from resnet_recipes.recipe.frozen import freeze

if TYPE_CHECKING:
    from resnet_recipes.recipe.schema import Recipe
    from resnet_recipes.training.trained import Evaluated


def evaluate(
    place: Path, recipe: "Recipe", sizes: Sequence[int], group: Group, say: Callable[[str], None]
) -> "tuple[Ending, list[Evaluated]]":
    """Evaluate at each size; return how the ranks ended, and the results if they ended well."""
    from resnet_recipes.process.evaluation import JOB, RECIPE, result_path

    job = json.dumps({"place": str(place.absolute()), "sizes": list(sizes)})
    with started({RECIPE: freeze(recipe), JOB: job}, replace(group, program=EVALUATE), say) as (
        folder,
        ending,
    ):
        numbers = () if ending.code else range(len(sizes))
        return ending, [
            _merged([result_path(folder, number, rank) for rank in range(group.ranks)])
            for number in numbers
        ]


def _merged(paths: Sequence[Path]) -> "Evaluated":
    """Merge the results of all ranks: all have the same metrics, and each has its own pairs."""
    import torch

    from resnet_recipes.report.facts import Metrics
    from resnet_recipes.training.confusion import Confusion
    from resnet_recipes.training.trained import Evaluated

    found = [torch.load(path, weights_only=True) for path in paths]
    return Evaluated(
        Metrics(*found[0]["metrics"]),
        max(one["seconds"] for one in found),
        found[0]["device"],
        Confusion([one["pairs"] for one in found]),
    )
