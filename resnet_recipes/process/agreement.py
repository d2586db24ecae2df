"""What ranks tell each other before they train, through the store where they meet: no collective, since those need ranks that agree."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping

import torch.distributed as dist

from resnet_recipes.errors import NotReadyError, Problem


def told(store: dist.Store, rank: int, world_size: int, say: Callable[[], str]) -> str:
    """Return on every rank what rank 0 says; it stays until all have heard it, for the store may be its own."""
    if rank == 0:
        text = say()
        store.set("said", text)
        store.wait([f"heard by {other}" for other in range(1, world_size)] or ["said"])
        return text
    text = store.get("said").decode()
    store.set(f"heard by {rank}", "")
    return text


def confirm_same(store: dist.Store, rank: int, world_size: int, facts: Mapping[str, object]) -> None:
    """Return if all ranks have the same facts. Raises NotReadyError, the same on every rank, naming one that differs, and in what."""
    store.set(f"facts of {rank}", json.dumps({"host": socket.gethostname(), "facts": {key: str(value) for key, value in facts.items()}}))

    def verdict() -> str:
        return json.dumps(list(_differences([json.loads(store.get(f"facts of {other}")) for other in range(world_size)])))

    if problems := [Problem(*problem) for problem in json.loads(told(store, rank, world_size, verdict))]:
        raise NotReadyError(problems)


def _differences(ranks: list[dict]) -> Iterator[Problem]:
    """Yield what the first rank that differs has otherwise than rank 0: one is enough to know what to do."""
    first, missing = ranks[0]["facts"], "not given"
    for rank, (host, facts) in enumerate((told["host"], told["facts"]) for told in ranks):
        if facts != first:
            for key in sorted(key for key in first.keys() | facts.keys() if first.get(key) != facts.get(key)):
                rule = f"is {first.get(key, missing)} on rank 0, and {facts.get(key, missing)} on rank {rank} ({host})"
                yield Problem(key, None, rule, "all ranks must have the same")
            return
