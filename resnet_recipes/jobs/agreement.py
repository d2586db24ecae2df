"""What ranks tell each other before they train, through the store where they meet.

Collectives are not used: they need ranks that already agree.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping

import torch.distributed as dist

from resnet_recipes.base.errors import NotReadyError, Problem
from resnet_recipes.jobs.watchdog import Watchdog


def broadcast(store: dist.Store, rank: int, world_size: int, text: Callable[[], str]) -> str:
    """Return rank 0's `text()` on every rank.

    Rank 0 waits until all have read it, since it may serve the store.
    """
    if rank == 0:
        value = text()
        store.set("text", value)
        store.wait([f"read by {other}" for other in range(1, world_size)] or ["text"])
        return value
    value = store.get("text").decode()
    store.set(f"read by {rank}", "")
    return value


def await_all(store: dist.Store, rank: int, world_size: int, watchdog: Watchdog) -> None:
    """Wait for all ranks, however long their machines fetch images; a launcher ends what hangs."""
    store.set(f"arrived {rank}", "")
    while not store.check([f"arrived {other}" for other in range(world_size)]):
        watchdog.beat(0, "start")
        time.sleep(0.5)


def confirm_same(
    store: dist.Store, rank: int, world_size: int, facts: Mapping[str, object]
) -> None:
    """Check that all ranks have the same facts.

    Raises NotReadyError, the same on every rank, naming a rank that differs from rank 0, and how.
    """
    own = {"host": socket.gethostname(), "facts": {key: str(value) for key, value in facts.items()}}
    store.set(f"facts of {rank}", json.dumps(own))

    def verdict() -> str:
        ranks = [json.loads(store.get(f"facts of {other}")) for other in range(world_size)]
        return json.dumps(list(_differences(ranks)))

    NotReadyError.refuse(
        Problem(*problem) for problem in json.loads(broadcast(store, rank, world_size, verdict))
    )


def _differences(ranks: list[dict]) -> Iterator[Problem]:
    """Yield how the first rank that differs from rank 0 differs.

    One rank is enough to know what to do.
    """
    first, missing = ranks[0]["facts"], "not given"
    for rank, (host, facts) in enumerate((found["host"], found["facts"]) for found in ranks):
        if facts != first:
            for key in sorted(
                key for key in first.keys() | facts.keys() if first.get(key) != facts.get(key)
            ):
                rule = (
                    f"is {first.get(key, missing)} on rank 0, but {facts.get(key, missing)} "
                    f"on rank {rank} ({host})"
                )
                yield Problem(key, None, rule, "it must be the same on all ranks")
            return
