"""What a rank has before it begins: images on its own machine, and the plan of its recipe."""

from typing import NamedTuple

from torch.distributed import PrefixStore

from resnet_recipes import data
from resnet_recipes.data.base import DataConfig, DataFacts
from resnet_recipes.jobs.agreement import await_all
from resnet_recipes.jobs.rank import RankProcess, shown
from resnet_recipes.planning.plan import Plan, make_plan
from resnet_recipes.recipe.frozen import read_sealed
from resnet_recipes.run_folder.names import CONFIG, DATA
from resnet_recipes.training import distributed
from resnet_recipes.training.distributed import Rank


def local_images(process: RankProcess, rank: Rank, config: DataConfig) -> DataConfig | None:
    """Return the settings with images on this machine; remote ones are fetched, for all ranks.

    None if this rank was asked to stop before.
    """
    with shown(process, f"fetching {config.root}", "MB") as progress:
        local = data.local(config, progress, lambda: process.interruption.requested)
    if local is not None and local is not config and rank.world_size > 1:
        store = distributed.meeting_place(rank.rank, rank.world_size)
        await_all(PrefixStore("images", store), rank.rank, rank.world_size, process.watchdog)
    return local


class Prepared(NamedTuple):
    """A rank, and the plan that all ranks make of what their launcher has frozen."""

    rank: Rank
    plan: Plan


def prepared(process: RankProcess) -> Prepared | None:
    """Return what a job needs; None if this rank was asked to stop before."""
    recipe = read_sealed(process.folder / CONFIG)
    rank = distributed.this_rank(recipe.launch.device)
    if (local := local_images(process, rank, recipe.data)) is None:
        return None
    facts = DataFacts.read(process.folder / DATA, local.root)
    return Prepared(rank, make_plan(recipe, facts, rank.world_size))
