"""How many loader processes or threads this machine has cores for."""

import os
from collections.abc import Iterator

import torch

from resnet_recipes.data.base import DataConfig

_MOST = 16             # more of them do not make one rank faster


def workers(config: DataConfig, ranks: int = 1) -> int:
    """Return the loader processes or threads of one rank: what the recipe says, or its part of this machine's cores, at most 16.

    `ranks` is how many of them are on this machine where no launcher has said so.
    """
    return fair_share(int(os.environ.get("LOCAL_WORLD_SIZE", ranks))) if config.workers == "auto" else int(config.workers)


def fair_share(ranks: int) -> int:
    """Return what each of `ranks` on this machine may use, which is what `data.workers=auto` stands for."""
    return max(1, min(_MOST, cores() // ranks))


def cores() -> int:
    """Return the cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def crowding(config: DataConfig) -> Iterator[str]:
    """Yield a note where a recipe asks for more workers than there are cores. Before a launch, a rank for each GPU is expected."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", max(1, torch.cuda.device_count())))
    if config.workers != "auto" and config.workers * ranks > cores():
        wanted = f"data.workers={config.workers}" + (f" for each of {ranks} ranks" if ranks > 1 else "")
        yield f"{wanted} is more than the {cores()} cores here: they will wait for each other; data.workers={fair_share(ranks)} fits"
