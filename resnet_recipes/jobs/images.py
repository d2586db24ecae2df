"""The images of a rank, on its own machine before any rank begins."""

from torch.distributed import PrefixStore

from resnet_recipes import data
from resnet_recipes.data.base import DataConfig
from resnet_recipes.jobs.agreement import await_all
from resnet_recipes.jobs.rank import RankProcess, shown
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
