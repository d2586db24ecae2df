"""Triton kernel for BatchNorm statistics: NHWC as rows of channels, in one launch."""

import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels import launch
from resnet_recipes.ops.kernels.sums import (
    divide_rows,
    get_counters,
    is_last_program,
    limit_registers,
    load_tile,
)
from resnet_recipes.ops.norm import Norm

#: Rows and channels of a tile: 256 threads move 16 bytes each, twice.
ROWS, CHANNELS = 64, 64

#: Number of programs that fit on a multiprocessor at once; the rows are split among exactly that
#: many. This is half of what registers allow, with twice the threads and rows of other kernels. The
#: last program then combines half as many partial results, twice as many at a time.
RESIDENT = 4
OPTIONS = limit_registers(8, RESIDENT)


def compute_statistics(x: Tensor, norm: Norm) -> Tensor:
    """Return mean and 1 / standard deviation of channels_last [N, C, H, W]: [2, C].

    Updates the running statistics.
    """
    (n, c, h, w), columns = x.shape, -(-x.shape[1] // CHANNELS)
    blocks, rows = divide_rows(n * h * w, ROWS, columns, x.device, RESIDENT)
    partial_sums, moments = norm.weight.new_empty(2, blocks, c), norm.weight.new_empty(2, c)
    running = norm.running_mean, norm.running_var, norm.tracked
    pointers = x, partial_sums, get_counters(x.device), moments, *running
    numbers = n * h * w, c, rows, blocks, norm.momentum, norm.eps
    grid, key = (blocks, columns, 1), (x.dtype, c, x.device)
    launch(_reduce_statistics, grid, key, *pointers, *numbers, ROWS, CHANNELS, **OPTIONS)
    return moments


@triton.jit(do_not_specialize=["m", "rows", "blocks"])
def _reduce_statistics(
    x, partial_sums, counters, moments, running_mean, running_var, tracked,
    m, c, rows, blocks, momentum, eps, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sum each part around a value near its mean, and combine the parts."""
    block = tl.program_id(0)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    is_channel = channel < c
    row = tl.arange(0, BM)
    count = tl.minimum(rows, m - block * rows)
    x += block.to(tl.int64) * rows * c
    shift = tl.sum(load_tile(x, row, count, channel, c), 0) / tl.minimum(count, BM)
    total = tl.zeros([BM, BC], tl.float32)
    square = tl.zeros([BM, BC], tl.float32)
    for start in range(0, count, BM):
        offset = load_tile(x, start + row, count, channel, c) - shift[None, :]
        offset = tl.where((start + row < count)[:, None], offset, 0.0)
        total += offset
        square += offset * offset
    sum_apart = tl.sum(total, 0)
    squares = tl.sum(square, 0) - sum_apart * sum_apart / count
    tl.store(partial_sums + block * c + channel, shift + sum_apart / count, mask=is_channel)
    tl.store(partial_sums + (blocks + block) * c + channel, squares, mask=is_channel)
    if is_last_program(counters, blocks):
        mean, squares = _combine(partial_sums, m, c, rows, blocks, channel, BM)
        tl.store(moments + channel, mean, mask=is_channel)
        tl.store(moments + c + channel, 1.0 / tl.sqrt(squares / m + eps), mask=is_channel)
        _track(running_mean + channel, mean, momentum, is_channel)
        _track(running_var + channel, squares / tl.maximum(m - 1, 1), momentum, is_channel)
        if tl.program_id(1) == 0:
            tl.store(tracked, tl.load(tracked) + 1)


@triton.jit
def _combine(partial_sums, m, c, rows, blocks, channel, BM: tl.constexpr):
    """Return the mean and the sum of squared deviations (Chan, Golub and LeVeque, 1983)."""
    row = tl.arange(0, BM)
    near = tl.load(partial_sums + channel, mask=channel < c, other=0.0, cache_modifier=".cg")
    total = tl.zeros([BM, channel.shape[0]], tl.float32)
    for start in range(0, blocks, BM):
        count = tl.minimum(rows, m - (start + row) * rows).to(tl.float32)[:, None]
        offset = load_tile(partial_sums, start + row, blocks, channel, c) - near[None, :]
        total += tl.where((start + row < blocks)[:, None], offset * count, 0.0)
    mean = near + tl.sum(total, 0) / m
    square = tl.zeros([BM, channel.shape[0]], tl.float32)
    for start in range(0, blocks, BM):
        count = tl.minimum(rows, m - (start + row) * rows).to(tl.float32)[:, None]
        offset = load_tile(partial_sums, start + row, blocks, channel, c) - mean[None, :]
        within = load_tile(partial_sums + blocks * c, start + row, blocks, channel, c)
        square += tl.where((start + row < blocks)[:, None], within + offset * offset * count, 0.0)
    return mean, tl.sum(square, 0)


@triton.jit
def _track(running, value, momentum, is_channel):
    before = tl.load(running, mask=is_channel, other=0.0)
    tl.store(running, before * (1.0 - momentum) + value * momentum, mask=is_channel)
