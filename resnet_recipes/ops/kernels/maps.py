"""Pixels of NHWC maps, for kernels that also read the neighbors of a pixel.

A `place` is (row, column, channel): one row, a column vector of columns, a row vector of channels.
A `size` is (height, width, channels) of the map.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels import Grid

#: Rows, columns and channels of one program's tile: 64 threads move 16 bytes each.
TILE = ROWS, COLUMNS, CHANNELS = 4, 8, 64
OPTIONS = {"num_warps": 2, "enable_fp_fusion": True}


def allocate(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return an uninitialized channels_last tensor with the device and dtype of `like`."""
    return torch.empty(
        shape, dtype=dtype or like.dtype, device=like.device, memory_format=torch.channels_last
    )


def make_grid(over: Tensor) -> Grid:
    """Return a grid with a program for each tile of [N, C, H, W]."""
    n, c, h, w = over.shape
    return n * -(-h // ROWS), -(-w // COLUMNS), -(-c // CHANNELS)


@triton.jit
def locate_tile(height, R: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr):
    """Return this program's image, and its tile's first row, columns and channels."""
    bands = (height + R - 1) // R
    image, top = tl.program_id(0) // bands, tl.program_id(0) % bands * R
    column = tl.program_id(1) * BW + tl.arange(0, BW)[:, None]
    channel = tl.program_id(2) * BC + tl.arange(0, BC)[None, :]
    return image.to(tl.int64), top, column, channel


@triton.jit
def get(x, place, size, other):
    """Load one pixel per column of a row, in float32; `other` outside the map."""
    offset, inside = _compute_offset(place, size)
    return tl.load(x + offset, mask=inside, other=other).to(tl.float32)


@triton.jit
def put(y, place, size, value):
    """Write one pixel per column, in the dtype of `y`; nothing outside the map."""
    offset, inside = _compute_offset(place, size)
    tl.store(y + offset, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _compute_offset(place, size):
    """Return the offset of one pixel per column, and whether it is inside the map."""
    row, column, channel = place
    h, w, c = size
    end = tl.where((row >= 0) & (row < h), w, 0)
    return (row * w + column) * c + channel, (column >= 0) & (column < end) & (channel < c)
