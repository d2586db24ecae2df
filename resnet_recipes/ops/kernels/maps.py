"""Pixels of NHWC maps, for kernels that also read the neighbours of a pixel."""

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
def get(x, row, column, channel, h, w, c, other):
    """Return one pixel of a row for each column; pixels outside the map are `other`."""
    return tl.load(
        x + (row * w + column) * c + channel,
        mask=inside(row, column, channel, h, w, c),
        other=other,
    )


@triton.jit
def put(y, row, column, channel, h, w, c, value):
    """Write one pixel for each column, in the type of `y`; nothing outside the map."""
    mask = inside(row, column, channel, h, w, c)
    tl.store(y + (row * w + column) * c + channel, value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def inside(row, column, channel, h, w, c):
    """Return whether each pixel is on the map; in a row outside it, none is."""
    end = tl.where((row >= 0) & (row < h), w, 0)
    return (column >= 0) & (column < end) & (channel < c)


@triton.jit
def rectified(x):
    """Return the ReLU of `x`; NaN stays NaN, as in torch, so that a diverged run is noticed."""
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
