"""The group of processes of a run: how many, by which command, in which environment."""

import importlib.metadata
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.errors import NotReadyError, Problem
from resnet_recipes.process.rank_process import LOCKED, STARTED

if TYPE_CHECKING:       # config needs torch; a launcher does not
    from resnet_recipes.config import LaunchConfig

#: Seconds that a rank may take to finish its step and save; torchrun's own 30 cut slower saves off.
GRACE = 120

RANK_MODULE = "resnet_recipes.process.rank"


@dataclass(frozen=True)
class Group:
    """The processes of a run."""

    local_ranks: int = 1                # on this node
    nodes: int = 1                      # the most, if it may change
    rdzv: str = ""                      # host:port where nodes meet
    max_restarts: int = 0
    fewest_nodes: int = 0               # with which the run goes on; 0: with all

    @property
    def ranks(self) -> int:
        """Processes on all nodes."""
        return self.local_ranks * self.nodes

    @property
    def by_torchrun(self) -> bool:
        """Tell whether torchrun starts the ranks. One process needs none: it starts seconds sooner, and its exit code is its own."""
        return self.ranks > 1 or self.max_restarts > 0


def group_of(config: "LaunchConfig") -> Group:
    """Return the processes that a recipe asks for, on this machine. Raises NotReadyError if it has fewer GPUs."""
    import torch

    gpus = 0 if config.device == "cpu" else torch.cuda.device_count()       # counting makes no CUDA context
    if config.device == "cuda" and not gpus:
        raise NotReadyError([Problem("launch.device", "cuda", "torch sees no GPU here", "launch.device=cpu, or look at nvidia-smi")])
    wanted = max(1, gpus) if config.gpus == "auto" else int(config.gpus)
    if gpus and wanted > gpus:
        raise NotReadyError([Problem("launch.gpus", wanted, f"this machine has {gpus}", f"gpus={gpus}")])
    fewest, most = config.fewest_and_most_nodes
    return Group(wanted, most, config.rdzv, config.max_restarts, fewest)


def command(folder: Path, group: Group) -> list[str]:
    """Return the command that trains the frozen recipe in `folder`; it can be pasted into a shell.

    Even one rank is a process of its own, so that a crash in a library, or the kernel's out-of-memory killer, ends in a message.
    """
    rank = ["-m", RANK_MODULE, str(folder)]
    if not group.by_torchrun:
        return [sys.executable, *rank]
    nodes = f"{group.fewest_nodes or group.nodes}:{group.nodes}"
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={group.local_ranks}",
                f"--max-restarts={group.max_restarts}", f"--log-dir={folder / 'logs' / 'torchrun'}"]
    if group.nodes == 1:
        torchrun += ["--standalone", "--local-addr=127.0.0.1"]
    else:
        torchrun += ["--rdzv-backend=c10d", f"--rdzv-endpoint={group.rdzv}", f"--rdzv-id={folder.name}"]
    if _torch_version() >= (2, 13):
        torchrun.append(f"--shutdown-timeout={GRACE}")
    return [*torchrun, *rank]


def environment(group: Group, started: float) -> dict[str, str]:
    """Return the environment of the ranks: the user's, and what makes a group of processes reliable."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    defaults = {"OMP_NUM_THREADS": str(max(1, cores // group.local_ranks))}
    if group.nodes == 1 and sys.platform == "linux":
        defaults["GLOO_SOCKET_IFNAME"] = "lo"           # one machine needs no name service and no open port
    fixed = {
        STARTED: str(started),
        "PYTHONSAFEPATH": "1",                          # no module is imported from the folder the user happens to be in
        "PYTHONUNBUFFERED": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",      # a restarted group must not read the dead one's addresses
    }
    if group.nodes == 1:
        fixed[LOCKED] = "1"
    return defaults | os.environ | fixed


def _torch_version() -> tuple[int, int]:
    major, minor, *_ = importlib.metadata.version("torch").split(".")
    return int(major), int(minor)
