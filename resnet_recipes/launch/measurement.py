"""Measure how fast the devices of this machine run a recipe, all at once, as ranks do in training."""

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.composing.frozen import freeze
from resnet_recipes.data import frozen
from resnet_recipes.errors import ExitCode
from resnet_recipes.launch.group import MEASURE, Group
from resnet_recipes.launch.start import start
from resnet_recipes.measure.estimate import Speeds
from resnet_recipes.process.ending import Ending

if TYPE_CHECKING:
    from resnet_recipes.plan import Plan


def speeds(plan: "Plan", group: Group, say: Callable[[str], None]) -> tuple[Ending, Speeds | None]:
    """Measure for about a minute; return how the ranks ended, and the speeds if they ended well."""
    from resnet_recipes.process.measurement import RECIPE, SPEEDS

    folder = Path(tempfile.mkdtemp(prefix="resnet-recipes-"))
    (folder / RECIPE).write_text(freeze(plan.recipe))
    (folder / frozen.NAME).write_text(frozen.dump(plan.facts))
    here = replace(group, nodes=1, fewest_nodes=0, max_restarts=0, program=MEASURE)
    ending, found = start(folder, here, say), None
    if not ending.code:
        found = Speeds.of_json(json.loads((folder / SPEEDS).read_text()))
    if not ending.failed or ending.code in (ExitCode.RECIPE, ExitCode.NOT_READY):
        shutil.rmtree(folder, ignore_errors=True)           # otherwise its logs are needed
    return ending, found
