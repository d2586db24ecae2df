"""What a rank has before it begins: images on its own machine, and the plan that all ranks make."""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import torch
import torchvision
from torch.distributed import PrefixStore

from resnet_recipes import __version__, data
from resnet_recipes.data.base import DataConfig, DataFacts
from resnet_recipes.jobs.agreement import await_all, confirm_same
from resnet_recipes.jobs.rank import RankProcess, shown
from resnet_recipes.planning.plan import Plan, make_plan
from resnet_recipes.recipe.frozen import read_sealed
from resnet_recipes.run_folder.names import CONFIG, DATA
from resnet_recipes.training import distributed
from resnet_recipes.training.distributed import Rank

SOFTWARE = {
    "resnet-recipes": __version__,
    "torch": torch.__version__,
    "torchvision": torchvision.__version__,
}


class Prepared(NamedTuple):
    """A rank, and the plan that all ranks make of what their launcher has frozen."""

    rank: Rank
    plan: Plan


def prepared(process: RankProcess) -> Prepared | None:
    """Return what a job needs; None if this rank was asked to stop before.

    Raises NotReadyError, the same on every rank, if their recipe, software or images differ.
    """
    recipe = read_sealed(process.folder / CONFIG)
    process.interruption.limit(recipe.launch.max_wall, process.started)
    rank = distributed.this_rank(recipe.launch.device)
    frozen = {"device": rank.device.type, f"digest of {CONFIG}": _digest(str(recipe))}
    confirm("recipe", rank, SOFTWARE | frozen)
    if (local := _local_images(process, rank, recipe.data)) is None:
        return None
    facts = DataFacts.read(process.folder / DATA, local.root)
    confirm(
        "data",
        rank,
        {
            "backend of the images": facts.backend,
            "number of training images": facts.train_examples,
            "number of validation images": facts.eval_examples,
            "digest of the class names": _digest("\n".join(facts.classes)),
            "digest of the images": facts.digest,
        },
    )
    return Prepared(rank, make_plan(recipe, facts, rank.world_size))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def confirm(topic: str, rank: Rank, facts: Mapping[str, object]) -> None:
    """Compare facts with the other ranks.

    A different recipe, torch or class folder on one node would go unnoticed.

    Raises NotReadyError, the same on every rank, if they differ.
    """
    if rank.world_size > 1:
        store = distributed.meeting_place(rank.rank, rank.world_size)
        confirm_same(PrefixStore(topic, store), rank.rank, rank.world_size, facts)


def _local_images(process: RankProcess, rank: Rank, config: DataConfig) -> DataConfig | None:
    """Return the settings with images on this machine; remote ones are fetched, for all ranks."""
    with shown(process, f"fetching {config.root}", "MB") as progress:
        local = data.local(config, progress, lambda: process.interruption.requested)
    if local is not None and local is not config and rank.world_size > 1:
        store = distributed.meeting_place(rank.rank, rank.world_size)
        await_all(PrefixStore("images", store), rank.rank, rank.world_size, process.watchdog)
    return local
