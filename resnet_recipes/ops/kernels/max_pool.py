"""Triton kernels for 3x3 max pooling with stride 1: NHWC, any size, one saved byte an output, float32 sums."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels.launch import launch

#: Rows, columns and channels of one program's output tile, at which 64 threads move 16 bytes at a time.
TILE = ROWS, COLUMNS, CHANNELS = 4, 8, 64
OPTIONS = {"num_warps": 2, "enable_fp_fusion": True}


def forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maxima of channels_last [N, C, H, W] and their places in the window: uint8, 0 to 8, row by row."""
    (_, c, h, w), y = x.shape, torch.empty_like(x)
    winner = torch.empty_like(x, dtype=torch.uint8)
    launch(_pool, _grid(x), (x.dtype, c, x.device), x, y, winner, h, w, c, *TILE, **OPTIONS)
    return y, winner


def backward(g: Tensor, winner: Tensor) -> Tensor:
    """Return the input's gradient: each pixel sums the gradients of the outputs whose maximum it was."""
    (_, c, h, w), dx = g.shape, torch.empty_like(g)
    launch(_unpool, _grid(g), (g.dtype, c, g.device), g, winner, dx, h, w, c, *TILE, **OPTIONS)
    return dx


def _grid(over: Tensor) -> tuple[int, int, int]:
    n, c, h, w = over.shape
    return n * -(-h // ROWS), -(-w // COLUMNS), -(-c // CHANNELS)


@triton.jit
def _row(x, row, column, channel, h, w, c, other):
    """Load one pixel of a row for each column; pixels outside the image are `other`."""
    end = tl.where((row >= 0) & (row < h), w, 0)        # a row outside the image has no columns
    inside = (column >= 0) & (column < end) & (channel < c)
    return tl.load(x + (row * w + column) * c + channel, mask=inside, other=other)


@triton.jit
def _sideways(x, row, column, channel, h, w, c):
    """Return the largest of the three pixels around each column of a row and its place; the first wins a tie."""
    best = _row(x, row, column - 1, channel, h, w, c, float("-inf")).to(tl.float32)
    place = tl.zeros_like(best).to(tl.int32)
    for step in tl.static_range(1, 3):
        value = _row(x, row, column - 1 + step, channel, h, w, c, float("-inf")).to(tl.float32)
        place = tl.where(value > best, step, place)
        best = tl.maximum(best, value)
    return best, place


@triton.jit
def _better(best, place, value, other_place):
    return tl.maximum(best, value), tl.where(value > best, other_place, place)


@triton.jit(do_not_specialize=["h", "w"])
def _pool(x, y, winner, h, w, c, R: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr):  # noqa: N803
    """Pool a tile of R rows, BW columns and BC channels; each row's maxima are reused by three output rows."""
    bands = (h + R - 1) // R
    image, top = tl.program_id(0) // bands, tl.program_id(0) % bands * R
    column = tl.program_id(1) * BW + tl.arange(0, BW)[:, None]
    channel = tl.program_id(2) * BC + tl.arange(0, BC)[None, :]
    first = image.to(tl.int64) * h * w * c
    above, above_place = _sideways(x + first, top - 1, column, channel, h, w, c)
    here, here_place = _sideways(x + first, top, column, channel, h, w, c)
    for r in tl.static_range(R):
        row = top + r
        below, below_place = _sideways(x + first, row + 1, column, channel, h, w, c)
        best, place = _better(above, above_place, here, here_place + 3)
        best, place = _better(best, place, below, below_place + 6)
        inside = (column < tl.where(row < h, w, 0)) & (channel < c)
        at = first + (row * w + column) * c + channel
        tl.store(y + at, best.to(y.dtype.element_ty), mask=inside)
        tl.store(winner + at, place.to(tl.uint8), mask=inside)
        above, above_place = here, here_place
        here, here_place = below, below_place


@triton.jit
def _shares(g, winner, row, column, channel, h, w, c):
    """Return the gradients that a row of outputs sends to the rows above, level with and below it."""
    up = tl.zeros([column.shape[0], channel.shape[1]], tl.float32)
    beside, down = up, up
    for step in tl.static_range(3):
        value = _row(g, row, column + 1 - step, channel, h, w, c, 0.0).to(tl.float32)
        place = _row(winner, row, column + 1 - step, channel, h, w, c, 255).to(tl.int32)
        up += tl.where(place == step, value, 0.0)
        beside += tl.where(place == 3 + step, value, 0.0)
        down += tl.where(place == 6 + step, value, 0.0)
    return up, beside, down


@triton.jit(do_not_specialize=["h", "w"])
def _unpool(g, winner, dx, h, w, c, R: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr):  # noqa: N803
    """Compute the input gradients of a tile of R rows, BW columns and BC channels."""
    bands = (h + R - 1) // R
    image, top = tl.program_id(0) // bands, tl.program_id(0) % bands * R
    column = tl.program_id(1) * BW + tl.arange(0, BW)[:, None]
    channel = tl.program_id(2) * BC + tl.arange(0, BC)[None, :]
    first = image.to(tl.int64) * h * w * c
    _, _, from_above = _shares(g + first, winner + first, top - 1, column, channel, h, w, c)
    _, beside, down = _shares(g + first, winner + first, top, column, channel, h, w, c)
    for r in tl.static_range(R):
        row = top + r
        from_below, next_beside, next_down = _shares(g + first, winner + first, row + 1, column, channel, h, w, c)
        inside = (column < tl.where(row < h, w, 0)) & (channel < c)
        total = from_above + beside + from_below
        tl.store(dx + first + (row * w + column) * c + channel, total.to(dx.dtype.element_ty), mask=inside)
        from_above, beside, down = down, next_beside, next_down
