"""What this machine has for loaders: workers and memory."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch

from resnet_recipes.base.cores import cores
from resnet_recipes.data.base import DataConfig

_MOST = 16  # more would not make one rank faster


def workers(config: DataConfig, ranks: int = 1) -> int:
    """Return a rank's loader processes or threads.

    The recipe's number, or its share of the cores, at most 16.

    `ranks` is the number of ranks on this machine if no launcher has set it.
    """
    if config.workers != "auto":
        return int(config.workers)
    return fair_share(int(os.environ.get("LOCAL_WORLD_SIZE", ranks)))


def fair_share(ranks: int) -> int:
    """Return the workers per rank with `data.workers=auto`, for `ranks` on this machine."""
    return max(1, min(_MOST, cores() // ranks))


def oversubscription(config: DataConfig) -> Iterator[str]:
    """Yield a note if a recipe asks for more workers than cores.

    Before a launch, one rank per GPU is assumed.
    """
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", max(1, torch.cuda.device_count())))
    # a rank needs one in any case
    if config.workers != "auto" and config.workers > max(1, cores() // ranks):
        each = f" for each of {ranks} ranks" if ranks > 1 else ""
        yield (
            f"data.workers={config.workers}{each} is more than the {cores()} cores of this "
            f"machine, which slows loading; use data.workers={fair_share(ranks)}"
        )


_NO_LIMIT = 1 << 62


def available_memory() -> int:
    """Return the bytes available on the machine or within the container's limit, if that is less.

    Page cache counts as available.
    """
    lines = Path("/proc/meminfo").read_text().splitlines()
    rows = dict(line.split(":", 1) for line in lines)
    free = int(rows["MemAvailable"].split()[0]) * 1024
    return min(free, _container(Path("/sys/fs/cgroup")))


def _container(cgroup: Path) -> int:
    """Read a version 2 control group: its limit minus used memory that cannot be reclaimed."""
    limit, used = cgroup / "memory.max", cgroup / "memory.current"
    if not limit.exists() or limit.read_text().strip() == "max":
        return _NO_LIMIT
    rows = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    return max(0, int(limit.read_text()) - int(used.read_text()) + int(rows.get("file", 0)))
