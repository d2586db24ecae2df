"""The entry point of a rank that measures, with the others, how fast they run a recipe."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import ExitCode
from resnet_recipes.data import frozen
from resnet_recipes.planning.plan import make_plan
from resnet_recipes.process.images import local_images
from resnet_recipes.process.rank_process import RankProcess, run_rank, shown
from resnet_recipes.recipe.frozen import read
from resnet_recipes.training import distributed, probe

#: The recipe to measure, and what rank 0 found.
RECIPE, SPEEDS = "config.yaml", "speeds.json"


def work(process: RankProcess) -> int:
    """Measure together with the other ranks."""
    recipe = read(process.folder / RECIPE)
    rank = distributed.this_rank(recipe.launch.device)
    if (local := local_images(process, rank, recipe.data)) is None:
        return process.interruption.exit_code
    facts = frozen.load(process.folder / frozen.NAME, local.root)
    plan = make_plan(recipe, facts, rank.world_size)
    with shown(process, "measuring", "parts") as progress:
        found = probe.speeds(plan, rank, progress=progress)
    if rank.is_main:
        atomic.write_text(process.folder / SPEEDS, json.dumps(asdict(found)))
    distributed.meet()
    distributed.leave()
    return ExitCode.DONE


if __name__ == "__main__":
    run_rank(Path(sys.argv[1]), work)
