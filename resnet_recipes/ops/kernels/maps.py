"""Pixels of NHWC maps, for kernels that also read the neighbours of a pixel.

A `place` is (row, column, channel): one row, a column of columns, a row of channels. A `size` is
(height, width, channels) of the map.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


def empty(like: Tensor, *shape: int) -> Tensor:
    """Return an uninitialised channels_last tensor of the type of `like`."""
    return torch.empty(
        shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last
    )


@triton.jit
def get(x, place, size, other):
    """Return one pixel of a row for each column; pixels outside the map are `other`."""
    return tl.load(x + _offset(place, size), mask=inside(place, size), other=other)


@triton.jit
def put(y, place, size, value):
    """Write one pixel for each column, in the type of `y`; nothing outside the map."""
    value = value.to(y.dtype.element_ty)
    tl.store(y + _offset(place, size), value, mask=inside(place, size))


@triton.jit
def _offset(place, size):
    row, column, channel = place
    _, w, c = size
    return (row * w + column) * c + channel


@triton.jit
def inside(place, size):
    """Return whether each pixel is on the map; in a row outside it, none is."""
    row, column, channel = place
    h, w, c = size
    end = tl.where((row >= 0) & (row < h), w, 0)
    return (column >= 0) & (column < end) & (channel < c)


@triton.jit
def rectified(x):
    """Return the ReLU of `x`; NaN stays NaN, as in torch, or a broken run would not be noticed."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
