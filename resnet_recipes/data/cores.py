"""The cores of this machine, and how many loader processes or threads they carry."""

import os
from collections.abc import Iterator

import torch

from resnet_recipes.data.base import DataConfig

_MOST = 16             # more do not make one rank faster


def workers(config: DataConfig, ranks: int = 1) -> int:
    """Return the loader processes or threads of one rank: the recipe's number, or its share of this machine's cores, at most 16.

    `ranks` is the number of ranks on this machine, unless a launcher has set it.
    """
    return fair_share(int(os.environ.get("LOCAL_WORLD_SIZE", ranks))) if config.workers == "auto" else int(config.workers)


def fair_share(ranks: int) -> int:
    """Return the workers of each of `ranks` on this machine under `data.workers=auto`."""
    return max(1, min(_MOST, cores() // ranks))


def cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def oversubscription(config: DataConfig) -> Iterator[str]:
    """Yield a note if a recipe asks for more workers than there are cores. Before a launch, one rank for each GPU is assumed."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", max(1, torch.cuda.device_count())))
    if config.workers != "auto" and config.workers * ranks > cores():
        wanted = f"data.workers={config.workers}" + (f" for each of {ranks} ranks" if ranks > 1 else "")
        yield f"{wanted} is more than the {cores()} cores here, which slows loading; use data.workers={fair_share(ranks)}"
