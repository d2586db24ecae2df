"""Measure how fast the devices of this machine run a recipe, all at once, as ranks do in training."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from resnet_recipes.data import frozen
from resnet_recipes.launch.group import MEASURE, Group
from resnet_recipes.launch.start import started
from resnet_recipes.measure.estimate import Speeds
from resnet_recipes.process.ending import Ending
from resnet_recipes.recipe.frozen import freeze

if TYPE_CHECKING:
    from resnet_recipes.planning.plan import Plan


def speeds(plan: "Plan", group: Group, say: Callable[[str], None]) -> tuple[Ending, Speeds | None]:
    """Measure for about a minute; return how the ranks ended, and the speeds if they ended well."""
    from resnet_recipes.process.measurement import RECIPE, SPEEDS

    files = {RECIPE: freeze(plan.recipe), frozen.NAME: frozen.dump(plan.facts)}
    here = replace(group, nodes=1, fewest_nodes=0, max_restarts=0, program=MEASURE)
    with started(files, here, say) as (folder, ending):
        return ending, None if ending.code else Speeds.of_json(
            json.loads((folder / SPEEDS).read_text())
        )
