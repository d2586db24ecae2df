"""Triton kernels for the 3x3 binomial blur: NHWC, any size, float32 sums."""

import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels import launch
from resnet_recipes.ops.kernels.maps import (
    OPTIONS,
    TILE,
    allocate,
    get,
    locate_tile,
    make_grid,
    put,
)


def forward(x: Tensor, stride: int) -> Tensor:
    """Blur channels_last [N, C, H, W] with stride 1 or 2.

    With stride 1 it is also the backward pass.
    """
    n, c, h, w = x.shape
    y = allocate(x, n, c, -(-h // stride), -(-w // stride))
    key = x.dtype, c, x.device, stride
    launch(_gather, make_grid(y), key, x, y, h, w, *y.shape[2:], c, stride, *TILE, **OPTIONS)
    return y


def backward(g: Tensor, height: int, width: int) -> Tensor:
    """Return the gradient of the input, [N, C, height, width], for a blur with stride 2."""
    n, c, h, w = g.shape
    dx = allocate(g, n, c, height, width)
    key = g.dtype, c, g.device
    launch(_scatter, make_grid(g), key, g, dx, height, width, h, w, c, *TILE, **OPTIONS)
    return dx


@triton.jit
def _blur_row(x, row, column, channel, size):
    """Blur one input row horizontally with [1, 2, 1] around each column."""
    middle = get(x, (row, column, channel), size, 0.0) * 2.0
    left = get(x, (row, column - 1, channel), size, 0.0)
    return left + middle + get(x, (row, column + 1, channel), size, 0.0)


@triton.jit(do_not_specialize=["h", "w", "ho", "wo"])
def _gather(
    x, y, h, w, ho, wo, c, S: tl.constexpr, R: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr
):
    """Blur a tile of R output rows, BW columns and BC channels.

    Each blurred row is reused by up to three outputs.
    """
    image, top, column, channel = locate_tile(ho, R, BW, BC)
    size = h, w, c
    x += image * h * w * c
    y += image * ho * wo * c
    above = _blur_row(x, top * S - 1, column * S, channel, size)
    here = _blur_row(x, top * S, column * S, channel, size)
    for r in tl.static_range(R):
        below = _blur_row(x, (top + r) * S + 1, column * S, channel, size)
        value = (above + here * 2.0 + below) * 0.0625
        put(y, (top + r, column, channel), (ho, wo, c), value)
        if S == 1:
            above, here = here, below
        elif r < R - 1:
            above, here = below, _blur_row(x, (top + r) * S + 2, column * S, channel, size)


@triton.jit(do_not_specialize=["h", "w", "ho", "wo"])
def _scatter(g, dx, h, w, ho, wo, c, R: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr):
    """Propagate R x BW output gradients to 2R x 2BW inputs.

    Odd rows and columns receive from both neighbors.
    """
    image, top, column, channel = locate_tile(ho, R, BW, BC)
    outputs, inputs = (ho, wo, c), (h, w, c)
    g += image * ho * wo * c
    dx += image * h * w * c
    even = get(g, (top, column, channel), outputs, 0.0)
    odd = even + get(g, (top, column + 1, channel), outputs, 0.0)
    for r in tl.static_range(R):
        row = (top + r) * 2
        even_below = get(g, (top + r + 1, column, channel), outputs, 0.0)
        odd_below = even_below + get(g, (top + r + 1, column + 1, channel), outputs, 0.0)
        put(dx, (row, column * 2, channel), inputs, even * 0.25)
        put(dx, (row, column * 2 + 1, channel), inputs, odd * 0.125)
        put(dx, (row + 1, column * 2, channel), inputs, (even + even_below) * 0.125)
        put(dx, (row + 1, column * 2 + 1, channel), inputs, (odd + odd_below) * 0.0625)
        even, odd = even_below, odd_below
