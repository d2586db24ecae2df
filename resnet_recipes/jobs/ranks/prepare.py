"""Check that all ranks have the same recipe, images and teachers before they start."""

import hashlib
import json
import socket
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import NamedTuple, Self

import torch
import torch.distributed as dist

from resnet_recipes import __version__, data
from resnet_recipes.base.errors import Hint, NotReadyError, Problem
from resnet_recipes.data.base import DataConfig, DataFacts
from resnet_recipes.data.remote import get_version
from resnet_recipes.jobs.ranks.rank import RankProcess, show_progress
from resnet_recipes.planning.plan import Plan
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe import frozen_recipe
from resnet_recipes.run_folder import CONFIG, DATA
from resnet_recipes.training import distributed
from resnet_recipes.training.distributed import Rank


class RankPlan(NamedTuple):
    """A rank, and the plan that all ranks derive from the frozen recipe."""

    rank: Rank
    plan: Plan


def prepare_rank(process: RankProcess) -> RankPlan | None:
    """Return the rank and plan for a task; None if this rank was already asked to stop.

    Raises NotReadyError, the same on every rank, if recipe, software, images or teachers differ.
    """
    recipe = frozen_recipe.read(process.folder / CONFIG)
    process.interruption.limit(recipe.launch.max_wall, process.launch.started_at)
    rank = distributed.read_rank(recipe.launch.device, process.launch.store_path)
    software = {
        "resnet-recipes": __version__,
        "torch": torch.__version__,
        "torchvision": version("torchvision"),
        "device": rank.device.type,
        f"digest of {CONFIG}": _compute_digest(str(recipe)),
    }
    Rendezvous.for_topic("recipe", rank).confirm(software)
    if (local := _fetch_images(process, recipe.data, rank)) is None:
        return None
    facts = DataFacts.read(process.folder / DATA, local.root)
    images = {
        "backend of the images": facts.backend,
        "number of training images": facts.train_examples,
        "number of validation images": facts.eval_examples,
        "digest of the class names": _compute_digest("\n".join(facts.classes)),
        "digest of the images": facts.digest,
    }
    if local.root != recipe.data.root:
        images["version of the fetched images"] = get_version(local.root)
    Rendezvous.for_topic("data", rank).confirm(images)
    plan = make_plan(recipe, facts, rank.world_size)
    Rendezvous.for_topic("teachers", rank).confirm(
        {teacher.key: teacher.digest for teacher in plan.teachers}
    )
    return RankPlan(rank, plan)


def _compute_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _fetch_images(process: RankProcess, config: DataConfig, rank: Rank) -> DataConfig | None:
    """Return the settings with local images; None if this rank was asked to stop.

    Remote images are fetched once for all ranks of a machine.
    """
    with show_progress(process, f"fetching {config.root}", "MB") as progress:
        local = data.fetch(config, progress, process.interruption.is_requested)
    if local is not None and local is not config:
        for _ in Rendezvous.for_topic("images", rank).await_all():
            process.heartbeat.beat(0, "start")
    return local


class Rendezvous(NamedTuple):
    """A place where ranks exchange facts about one topic, through a key-value store.

    Collectives are not used, because they need ranks with the same software.
    """

    store: dist.Store
    rank: int
    world_size: int

    @classmethod
    def for_topic(cls, topic: str, rank: Rank) -> Self:
        """Return the rendezvous of this rank with the others."""
        store = distributed.open_store(rank.rank, rank.world_size, rank.store_path)
        return cls(dist.PrefixStore(topic, store), rank.rank, rank.world_size)

    def broadcast(self, text: str) -> str:
        """Return rank 0's text on every rank.

        Rank 0 waits until all ranks have read it, because it may serve the store.
        """
        if self.rank == 0:
            self.store.set("text", text)
            read = [f"read by {other}" for other in range(1, self.world_size)]
            self.store.wait(read or ["text"])
            return text
        text = self.store.get("text").decode()
        self.store.set(f"read by {self.rank}", "")
        return text

    def await_all(self) -> Iterator[None]:
        """Yield twice a second until all ranks have arrived."""
        self.store.set(f"arrived {self.rank}", "")
        while not self.store.check([f"arrived {other}" for other in range(self.world_size)]):
            yield
            time.sleep(0.5)

    def confirm(self, facts: Mapping[str, object]) -> None:
        """Check that all ranks have the same facts.

        Raises NotReadyError, the same on every rank, which names a rank that differs from rank 0,
        and the difference.
        """
        texts = {key: str(value) for key, value in facts.items()}
        self.store.set(f"facts of {self.rank}", json.dumps([socket.gethostname(), texts]))

        differences = "[]"
        if self.rank == 0:
            ranks = [self.store.get(f"facts of {other}") for other in range(self.world_size)]
            differences = json.dumps(list(_compare_ranks(list(map(json.loads, ranks)))))
        fix = Hint("it must be the same on all ranks")
        NotReadyError.raise_if_any(
            Problem(key, None, clause, fix)
            for key, clause in json.loads(self.broadcast(differences))
        )


def _compare_ranks(ranks: list[tuple[str, dict[str, str]]]) -> Iterator[tuple[str, str]]:
    """Yield the differences between rank 0 and the first rank that differs.

    One rank is enough to find the cause.
    """
    _, first = ranks[0]
    missing = "not given"
    for rank, (host, facts) in enumerate(ranks):
        if differing := sorted(
            key for key in first.keys() | facts.keys() if first.get(key) != facts.get(key)
        ):
            for key in differing:
                clause = (
                    f"is {first.get(key, missing)} on rank 0, but {facts.get(key, missing)} "
                    f"on rank {rank} ({host})"
                )
                yield key, clause
            return
