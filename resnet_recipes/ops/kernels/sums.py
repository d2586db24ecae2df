"""Sums over rows in one launch: the last program to finish adds up all partial sums.

It adds them in a fixed order, so the result does not depend on which program is last.
"""

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

REGISTERS = 65536  # registers per multiprocessor; threads get them in multiples of eight


def get_counters(device: torch.device) -> Tensor:
    """Return a counter of finished programs for each column of a grid.

    The last program of each column resets its counter. Launches on two streams may run at once, so
    each stream has separate counters. CUDA graphs share one set, because a process replays them on
    one stream.
    """
    if device.type != "cuda":
        return _allocate_counters(device, 0)
    graphs = _allocate_counters(device, None)  # allocated before the first capture, not during it
    if torch.cuda.is_current_stream_capturing():
        return graphs
    return _allocate_counters(device, torch.cuda.current_stream(device).cuda_stream)


@cache
def _allocate_counters(device: torch.device, stream: int | None) -> Tensor:
    return torch.zeros(1024, dtype=torch.int32, device=device)


def limit_registers(warps: int, resident: int) -> dict[str, object]:
    """Return launch options that let `resident` programs fit on a multiprocessor.

    Holds for every version of Triton.
    """
    options: dict[str, object] = {"num_warps": warps, "enable_fp_fusion": True}
    if torch.version.hip:  # the AMD backend of Triton has no register limit
        return options
    return options | {"maxnreg": REGISTERS // (32 * warps * resident) // 8 * 8}


class RowBlocks(NamedTuple):
    """How the programs of a column divide its rows."""

    blocks: int
    rows: int  # rows per block, a multiple of the tile


@cache
def divide_rows(
    rows: int, tile: int, columns: int, device: torch.device, resident: int
) -> RowBlocks:
    """Divide the rows of a column between the programs that run at the same time."""
    max_programs = max(1, resident * _count_multiprocessors(device) // columns)
    block_rows = -(-rows // (max_programs * tile)) * tile
    return RowBlocks(-(-rows // block_rows), block_rows)


@cache
def _count_multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def is_last_program(counters, programs):
    """Return whether this is the last of its column's `programs`.

    If so, it can read the results of the other programs.
    """
    tl.debug_barrier()
    count = tl.atomic_add(counters + tl.program_id(1), 1, sem="acq_rel", scope="gpu")
    if count == programs - 1:
        tl.store(counters + tl.program_id(1), 0)
    return count == programs - 1


@triton.jit
def load_tile(x, row, rows, channel, c):
    """Load a tile of rows and channels in float32, with zeros beyond row `rows` and channel `c`."""
    inside = (row < rows)[:, None] & (channel < c)[None, :]
    return tl.load(x + row[:, None] * c + channel[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _sum_two_tiles(x, row, rows, channel, c, BM: tl.constexpr):
    """Return the sum of two tiles.

    No instruction needs the first tile before the second is also loaded.
    """
    return load_tile(x, row, rows, channel, c) + load_tile(x, row + BM, rows, channel, c)


@triton.jit
def add_up(
    sums_of_block, partial_sums, counters, moments, sums, blocks, channel, c, BM: tl.constexpr
):
    """Store a program's partial sums of g and g * (x - mean); the last program adds them up.

    `sums` get the gradients of the weight and the bias.
    """
    sum_g, sum_gx = sums_of_block
    block = tl.program_id(0)
    is_channel = channel < c
    tl.store(partial_sums + block * c + channel, sum_g, mask=is_channel)
    tl.store(partial_sums + (blocks + block) * c + channel, sum_gx, mask=is_channel)
    if is_last_program(counters, blocks):
        row = tl.arange(0, BM)
        total_g = tl.zeros([BM, channel.shape[0]], tl.float32)
        total_gx = tl.zeros([BM, channel.shape[0]], tl.float32)
        for start in range(0, blocks, 2 * BM):
            total_g += _sum_two_tiles(partial_sums, start + row, blocks, channel, c, BM)
            total_gx += _sum_two_tiles(
                partial_sums + blocks * c, start + row, blocks, channel, c, BM
            )
        inverse = tl.load(moments + c + channel, mask=is_channel, other=0.0)
        tl.store(sums + c + channel, tl.sum(total_g, 0), mask=is_channel)
        tl.store(sums + channel, tl.sum(total_gx, 0) * inverse, mask=is_channel)
