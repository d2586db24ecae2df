"""Evaluate a network on several devices of this machine: start ranks as in training, and merge their results."""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.composing.frozen import freeze
from resnet_recipes.errors import ExitCode
from resnet_recipes.launch.group import EVALUATE, Group
from resnet_recipes.launch.start import start
from resnet_recipes.process.ending import Ending

if TYPE_CHECKING:
    from resnet_recipes.config import Recipe
    from resnet_recipes.train.trained import Evaluated


def evaluate(place: Path, recipe: "Recipe", sizes: Sequence[int], group: Group,
             say: Callable[[str], None]) -> "tuple[Ending, list[Evaluated]]":
    """Evaluate at each size; return how the ranks ended, and the results if they ended well."""
    from resnet_recipes.process.evaluation import JOB, RECIPE, result_path

    folder = Path(tempfile.mkdtemp(prefix="resnet-recipes-"))
    (folder / RECIPE).write_text(freeze(recipe))
    (folder / JOB).write_text(json.dumps({"place": str(place.absolute()), "sizes": list(sizes)}))
    ending, found = start(folder, replace(group, program=EVALUATE), say), []
    if not ending.code:
        found = [_merged([result_path(folder, number, rank) for rank in range(group.ranks)])
                 for number in range(len(sizes))]
    if not ending.failed or ending.code in (ExitCode.RECIPE, ExitCode.NOT_READY):
        shutil.rmtree(folder, ignore_errors=True)           # otherwise its logs are needed
    return ending, found


def _merged(paths: Sequence[Path]) -> "Evaluated":
    """Merge the results of all ranks: all have the same metrics, and each has its own pairs."""
    import torch

    from resnet_recipes.report.facts import Metrics
    from resnet_recipes.train.confusion import Confusion
    from resnet_recipes.train.trained import Evaluated

    found = [torch.load(path, weights_only=True) for path in paths]
    device, ranks = found[0]["device"].partition(":")[0], len(found)
    return Evaluated(Metrics(*found[0]["metrics"]), max(one["seconds"] for one in found), f"{ranks} x {device}",
                     Confusion([one["pairs"] for one in found]))
