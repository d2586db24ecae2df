"""Communication between ranks, except the all-reduce of gradients."""

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from resnet_recipes.base.cores import count_training_cores
from resnet_recipes.base.text import format_count
from resnet_recipes.cuda import is_usable

#: Maximum time that a rank waits for the others: long enough to compile, read folders and evaluate.
TIMEOUT = timedelta(minutes=30)

LOOPBACK_ADDRESS = "127.0.0.1"


@dataclass(frozen=True)
class Rank:
    """One process of the run, and its device."""

    rank: int
    world_size: int
    device: torch.device
    store_path: str = ""  # rendezvous file of the launcher's ranks

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that writes the run folder."""
        return self.rank == 0

    @property
    def devices(self) -> str:
        """The devices of all ranks, as in "8 x NVIDIA H100" or "CPU, 2 cores"."""
        if self.device.type == "cuda":
            return f"{self.world_size} x {torch.cuda.get_device_name(self.device)}"
        ranks = "" if self.world_size == 1 else f", {self.world_size} processes"
        return f"CPU, {format_count(count_training_cores(self.world_size), 'core')}{ranks}"


def read_rank(device: str, store_path: str = "") -> Rank:
    """Return this process's rank, from torchrun's environment variables.

    `device` is auto, cuda or cpu.
    """
    rank = int(os.environ.get("RANK", 0))
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    if device == "cpu" or (device == "auto" and not is_usable()):
        return Rank(rank, world_size, torch.device("cpu"), store_path)
    # with srun --gpus-per-task=1, each rank sees one GPU
    index = 0 if torch.cuda.device_count() == 1 else int(os.environ.get("LOCAL_RANK", 0))
    return Rank(rank, world_size, torch.device("cuda", index), store_path)


def join_group(rank: Rank) -> None:
    """Select this rank's device and join the process group.

    A single process needs no group and creates none.
    """
    if rank.device.type == "cuda":
        torch.cuda.set_device(rank.device)
    if rank.world_size > 1 and not dist.is_initialized():
        form_group(rank)


def form_group(rank: Rank) -> None:
    """Create the process group of all ranks, even if there is only one."""
    backend, device = ("nccl", rank.device) if rank.device.type == "cuda" else ("gloo", None)
    store = open_store(rank.rank, rank.world_size, rank.store_path)
    dist.init_process_group(
        backend,
        store=store,
        rank=rank.rank,
        world_size=rank.world_size,
        timeout=TIMEOUT,
        device_id=device,
    )


@cache  # rank 0 may be the server, and a process can run only one
def open_store(rank: int, world_size: int, path: str) -> dist.Store:
    """Return the rendezvous store of all ranks; wait only for its server.

    Ranks of the launcher use the file `path`, other ranks the address in torchrun's environment
    variables. A store that this package opens on a loopback address does not listen on the network.
    """
    if world_size == 1:
        return dist.HashStore()
    if path:
        file_store = dist.FileStore(path, -1)  # -1: never deleted: a rank may still need it
        file_store.set_timeout(TIMEOUT)
        return file_store
    # the user's torchrun serves the store
    is_served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if os.environ.get("MASTER_ADDR") == LOOPBACK_ADDRESS and not is_served:
        store = _open_loopback_store(int(os.environ["MASTER_PORT"]), is_server=rank == 0)
    else:
        store, _, _ = next(dist.rendezvous("env://", rank, world_size, timeout=TIMEOUT))
    if os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") == "1":
        # Each attempt has a new store, and a node that joined late has counted fewer restarts.
        return store
    # The store of torchrun survives an in-place restart and still has the addresses of the dead
    # group (pytorch/pytorch#135712).
    return dist.PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _open_loopback_store(port: int, is_server: bool) -> dist.TCPStore:
    """Return a store that only this machine can reach.

    The server that torch starts by default would listen on every interface.
    """
    listening = socket.create_server((LOOPBACK_ADDRESS, port)).detach() if is_server else None
    return dist.TCPStore(
        LOOPBACK_ADDRESS,
        port,
        is_master=is_server,
        timeout=TIMEOUT,
        wait_for_workers=False,
        master_listen_fd=listening,
    )


def leave_group() -> None:
    """Leave the process group; otherwise gloo processes sometimes abort at exit."""
    if dist.is_initialized():
        dist.destroy_process_group()


@torch.no_grad()
def broadcast_statistics(model: nn.Module) -> None:
    """Copy rank 0's buffers, such as BatchNorm statistics, to every rank."""
    if dist.is_initialized():
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


@torch.no_grad()
def average_statistics(model: nn.Module) -> None:
    """Average the floating-point buffers (BatchNorm running statistics) over all ranks."""
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if buffers and dist.is_initialized():
        means = average_over_ranks(torch.cat([buffer.float().flatten() for buffer in buffers]))
        for buffer, mean in zip(
            buffers, means.split([buffer.numel() for buffer in buffers]), strict=True
        ):
            buffer.copy_(mean.view_as(buffer))


def average_over_ranks(tensor: Tensor) -> Tensor:
    """Average a float tensor over ranks in place and return it."""
    return sum_over_ranks(tensor).div_(dist.get_world_size() if dist.is_initialized() else 1)


def sum_over_ranks(tensor: Tensor) -> Tensor:
    """Sum a tensor over ranks in place and return it; exact for integers."""
    if dist.is_initialized():
        dist.all_reduce(tensor)
    return tensor


def is_same_on_all_ranks(tensor: Tensor) -> bool:
    """Return whether an int64 tensor is the same on every rank."""
    if not dist.is_initialized():
        return True
    pair = torch.stack([tensor, -tensor])
    dist.all_reduce(pair, op=dist.ReduceOp.MAX)
    return bool((pair[0] == -pair[1]).all())


def find_first_ranks(flags: Tensor) -> list[int]:
    """Return the first rank that set each flag, or -1 if no rank did."""
    if not dist.is_initialized():
        return [0 if flag else -1 for flag in flags.tolist()]
    ranks = torch.where(flags, dist.get_rank(), dist.get_world_size())
    dist.all_reduce(ranks, op=dist.ReduceOp.MIN)
    return [-1 if rank == dist.get_world_size() else rank for rank in ranks.tolist()]


def wait_for_ranks() -> None:
    """Wait until every rank has called this function."""
    if dist.is_initialized():
        dist.barrier()


class Vote:
    """Lets ranks agree to stop without waiting for the device.

    The votes of a step are counted in the next step, so ranks rarely wait for each other. Signals
    reach ranks at different times, and a rank that stopped alone would leave the others blocked in
    a collective.
    """

    def __init__(self) -> None:
        self._group: Any = (
            dist.new_group(backend="gloo", timeout=TIMEOUT) if dist.is_initialized() else None
        )
        self._ballot = torch.zeros((), dtype=torch.int32)
        self._pending: dist.Work | None = None

    def cast(self, stop: bool) -> bool:
        """Cast this rank's vote.

        Returns whether any rank voted to stop in the previous step; with a single process, in this
        step.
        """
        if self._group is None:
            return stop
        if self._pending is not None:
            self._pending.wait()
        is_agreed = bool(self._ballot)
        self._ballot = torch.tensor(int(stop), dtype=torch.int32)
        self._pending = dist.all_reduce(
            self._ballot, op=dist.ReduceOp.MAX, group=self._group, async_op=True
        )
        return is_agreed
