"""Triton kernels for BatchNorm, residual, ReLU and their gradient: NHWC as rows of channels."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels import Grid, launch
from resnet_recipes.ops.kernels.statistics import compute_statistics
from resnet_recipes.ops.kernels.sums import (
    add_up,
    divide_rows,
    get_counters,
    limit_registers,
    load_tile,
)
from resnet_recipes.ops.norm import Epilogue, Norm, SavedTensors

#: Rows and channels of a tile: 128 threads move 16 bytes each, twice.
ROWS, CHANNELS = 32, 64
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}

#: Number of sum programs that fit on a multiprocessor at once; the rows are split among exactly
#: that many. Sums need more registers if images have factors.
RESIDENT, RESIDENT_LARGE = 5, 4
REDUCE_OPTIONS = limit_registers(4, RESIDENT)
LARGE_REDUCE_OPTIONS = limit_registers(4, RESIDENT_LARGE)


def forward(x: Tensor, norm: Norm, epilogue: Epilogue) -> tuple[Tensor, Tensor]:
    """Return the output for channels_last [N, C, H, W], and the moments [2, C].

    The moments are the mean and 1 / standard deviation.
    """
    moments = compute_statistics(x, norm)
    (n, c, h, w), z = x.shape, torch.empty_like(x)
    residual, keep, relu = epilogue.residual, epilogue.keep, epilogue.relu
    key = x.dtype, c, x.device, residual is None, keep is None, relu
    pointers = x, residual, keep, z, moments, norm.weight, norm.bias
    numbers = n * h * w, c, h * w
    launch(_apply, _make_grid(x), key, *pointers, *numbers, relu, ROWS, CHANNELS, **OPTIONS)
    return z, moments


def backward(
    g: Tensor, other: Tensor | None, saved: SavedTensors
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the gradients of the input [N, C, H, W], the residual, and weight and bias [2, C].

    The gradient of the residual is None if there is none. `other` is the gradient of the second
    output, if that was used and there is a residual.
    """
    x, z, keep = saved.x, saved.z, saved.keep
    (n, c, h, w), columns = x.shape, -(-x.shape[1] // CHANNELS)
    resident, options = RESIDENT, REDUCE_OPTIONS
    if keep is not None:
        resident, options = RESIDENT_LARGE, LARGE_REDUCE_OPTIONS
    blocks, rows = divide_rows(n * h * w, ROWS, columns, x.device, resident)
    partial_sums, sums = saved.weight.new_empty(2, blocks, c), saved.weight.new_empty(2, c)
    gated = None if z is None else torch.empty_like(x)
    pointers = g, other, x, z, keep, gated, partial_sums, get_counters(x.device)
    pointers += saved.moments, saved.weight, saved.bias, sums
    numbers = n * h * w, c, h * w, rows, blocks
    key = x.dtype, c, x.device, other is None, z is None, keep is None, saved.relu
    grid = blocks, columns, 1
    launch(_reduce, grid, key, *pointers, *numbers, saved.relu, ROWS, CHANNELS, **options)
    dx, relu = torch.empty_like(x), saved.relu and gated is None
    key = x.dtype, c, x.device, keep is None, relu
    pointers = g if gated is None else gated, x, keep, dx
    pointers += saved.moments, saved.weight, saved.bias, sums
    numbers = n * h * w, c, h * w
    launch(
        _compute_input_gradient,
        _make_grid(x),
        key,
        *pointers,
        *numbers,
        relu,
        ROWS,
        CHANNELS,
        **OPTIONS,
    )
    return dx, gated, sums


def _make_grid(x: Tensor) -> Grid:
    n, c, h, w = x.shape
    return -(-(n * h * w) // ROWS), -(-c // CHANNELS), 1


@triton.jit
def _put(y, row, rows, channel, c, value):
    inside = (row < rows)[:, None] & (channel < c)[None, :]
    tl.store(y + row[:, None] * c + channel[None, :], value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _load_factors(keep, row, m, area):
    return tl.load(keep + row // area, mask=row < m, other=0.0)[:, None]


@triton.jit
def _normalize(x, moments, weight, bias, channel, c):
    """Return weight * (x - mean) * rstd + bias; backward repeats it bit-identically."""
    is_channel = channel < c
    inverse = tl.load(moments + c + channel, mask=is_channel, other=0.0)
    scale = tl.load(weight + channel, mask=is_channel, other=0.0) * inverse
    offset = x - tl.load(moments + channel, mask=is_channel, other=0.0)[None, :]
    return offset * scale[None, :] + tl.load(bias + channel, mask=is_channel, other=0.0)[None, :]


@triton.jit(do_not_specialize=["m", "area"])
def _apply(
    x, residual, keep, z, moments, weight, bias, m, c, area,
    RELU: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Normalize, multiply by `keep`, add the residual and apply ReLU.

    `residual` and `keep` may be None.
    """
    first = tl.program_id(0).to(tl.int64) * BM * c
    left = m - tl.program_id(0) * BM
    row = tl.arange(0, BM)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    value = _normalize(
        load_tile(x + first, row, left, channel, c), moments, weight, bias, channel, c
    )
    if keep is not None:
        value *= _load_factors(keep, tl.program_id(0) * BM + row, m, area)
    if residual is not None:
        value += load_tile(residual + first, row, left, channel, c)
    if RELU:  # NaN stays NaN, as in torch; otherwise a broken run would go unnoticed
        value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
    _put(z + first, row, left, channel, c, value)


@triton.jit(do_not_specialize=["m", "area", "rows", "blocks"])
def _reduce(
    g, other, x, z, keep, gated, partial_sums, counters, moments, weight, bias, sums,
    m, c, area, rows, blocks,
    RELU: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of weight and bias.

    Store the gradient after the ReLU mask in `gated` unless it is None. `other`, the output `z` and
    `keep` may also be None.
    """
    block = tl.program_id(0)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    row = tl.arange(0, BM)
    count = tl.minimum(rows, m - block * rows)
    first = block.to(tl.int64) * rows * c
    center = tl.load(moments + channel, mask=channel < c, other=0.0)
    sum_g = tl.zeros([BM, BC], tl.float32)
    sum_gx = tl.zeros([BM, BC], tl.float32)
    for start in range(0, count, BM):
        at = start + row
        upstream = load_tile(g + first, at, count, channel, c)
        value = load_tile(x + first, at, count, channel, c)
        if other is not None:
            upstream += load_tile(other + first, at, count, channel, c)
        if RELU:
            if z is not None:
                output = load_tile(z + first, at, count, channel, c)
            else:
                output = _normalize(value, moments, weight, bias, channel, c)
            upstream = tl.where(output <= 0, 0.0, upstream)
        if gated is not None:
            _put(gated + first, at, count, channel, c, upstream)
        if keep is not None:
            upstream *= _load_factors(keep, block * rows + at, m, area)
        sum_g += upstream
        sum_gx += upstream * (value - center[None, :])
    sums_of_block = tl.sum(sum_g, 0), tl.sum(sum_gx, 0)
    add_up(sums_of_block, partial_sums, counters, moments, sums, blocks, channel, c, BM)


@triton.jit(do_not_specialize=["m", "area"])
def _compute_input_gradient(
    g, x, keep, dx, moments, weight, bias, sums, m, c, area,
    RELU: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Store the gradient of the input in `dx`.

    It is weight * rstd * (g - mean(g) - x_hat * mean(g * x_hat)), where x_hat is the normalized
    input.
    """
    first = tl.program_id(0).to(tl.int64) * BM * c
    left = m - tl.program_id(0) * BM
    row = tl.arange(0, BM)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    is_channel = channel < c
    upstream = load_tile(g + first, row, left, channel, c)
    value = load_tile(x + first, row, left, channel, c)
    if RELU:
        output = _normalize(value, moments, weight, bias, channel, c)
        upstream = tl.where(output <= 0, 0.0, upstream)
    if keep is not None:
        upstream *= _load_factors(keep, tl.program_id(0) * BM + row, m, area)
    inverse = tl.load(moments + c + channel, mask=is_channel, other=0.0)
    slope = tl.load(sums + channel, mask=is_channel, other=0.0) * inverse / m
    level = tl.load(sums + c + channel, mask=is_channel, other=0.0) / m
    center = tl.load(moments + channel, mask=is_channel, other=0.0)
    scale = tl.load(weight + channel, mask=is_channel, other=0.0) * inverse
    value = upstream - level[None, :] - (value - center[None, :]) * slope[None, :]
    _put(dx + first, row, left, channel, c, value * scale[None, :])
