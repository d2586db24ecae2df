"""Triton kernels for the maximum of 3x3 pixels: NHWC, any size.

The place of a maximum in its window is a byte, 0 to 8, in row-major order. If all pixels of a
window at a border are -inf, the place may be in the padding. Then no pixel gets the gradient,
whereas torch gives it to the first pixel. Distinguishing padding from pixels would cost
instructions in every window.
"""

import torch
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

#: A value that is not a place in a window.
NOWHERE = tl.constexpr(9)


def forward(x: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Return the maxima of channels_last [N, C, H, W] with stride 1 or 2, and their places."""
    n, c, h, w = x.shape
    shape = n, c, -(-h // stride), -(-w // stride)
    y, places = allocate(x, *shape), allocate(x, *shape, dtype=torch.uint8)
    key = x.dtype, c, x.device, stride
    numbers = h, w, *shape[2:], c, stride
    launch(_pool, make_grid(y), key, x, y, places, *numbers, *TILE, **OPTIONS)
    return y, places


def backward(g: Tensor, places: Tensor, stride: int, height: int, width: int) -> Tensor:
    """Return the gradient of the input, [N, C, height, width]."""
    n, c, h, w = g.shape
    dx = allocate(g, n, c, height, width)
    kernel, key = _unpool if stride == 1 else _unpool_halves, (g.dtype, c, g.device)
    launch(kernel, make_grid(g), key, g, places, dx, height, width, h, w, c, *TILE, **OPTIONS)
    return dx


@triton.jit(do_not_specialize=["h", "w", "ho", "wo"])
def _pool(
    x, y, places, h, w, ho, wo, c,
    S: tl.constexpr, R: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Find the maxima of a tile of R output rows, BW columns and BC channels."""
    image, top, column, channel = locate_tile(ho, R, BW, BC)
    size, outputs = (h, w, c), (ho, wo, c)
    x += image * h * w * c
    y += image * ho * wo * c
    places += image * ho * wo * c
    above, above_at = _find_row_maximum(x, top * S - 1, column * S, channel, size)
    here, here_at = _find_row_maximum(x, top * S, column * S, channel, size)
    for r in tl.static_range(R):
        below, below_at = _find_row_maximum(x, (top + r) * S + 1, column * S, channel, size)
        best, at = _choose_larger(above, above_at, here, here_at + 3)
        best, at = _choose_larger(best, at, below, below_at + 6)
        put(y, (top + r, column, channel), outputs, best)
        put(places, (top + r, column, channel), outputs, at)
        if S == 1:
            above, above_at, here, here_at = here, here_at, below, below_at
        elif r < R - 1:
            above, above_at = below, below_at
            here, here_at = _find_row_maximum(x, (top + r) * S + 2, column * S, channel, size)


@triton.jit
def _find_row_maximum(x, row, column, channel, size):
    """Return the largest of the three pixels of a row around each column, and its place."""
    left = get(x, (row, column - 1, channel), size, float("-inf"))
    middle = get(x, (row, column, channel), size, float("-inf"))
    right = get(x, (row, column + 1, channel), size, float("-inf"))
    best, at = _choose_larger(left, tl.zeros_like(left).to(tl.int32), middle, 1)
    return _choose_larger(best, at, right, 2)


@triton.jit
def _choose_larger(first, first_at, second, second_at):
    """Return the larger value and its place; as in torch, the first of ties and the last NaN.

    NaN counts as larger than any number; otherwise a broken run would go unnoticed.
    """
    is_second = (second > first) | (second != second)
    return tl.where(is_second, second, first), tl.where(is_second, second_at, first_at)


@triton.jit(do_not_specialize=["h", "w", "ho", "wo"])
def _unpool(g, places, dx, h, w, ho, wo, c, R: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr):
    """Collect the gradients of R x BW pixels from maxima in their row and the adjacent rows."""
    image, top, column, channel = locate_tile(h, R, BW, BC)
    size = h, w, c  # ho and wo, arguments of both kernels, equal h and w here
    start = image * h * w * c
    g, places, dx = g + start, places + start, dx + start
    _, _, from_above = _distribute(g, places, top - 1, column, channel, size)
    _, middle, down = _distribute(g, places, top, column, channel, size)
    for r in tl.static_range(R):
        up, next_own, next_down = _distribute(g, places, top + r + 1, column, channel, size)
        put(dx, (top + r, column, channel), size, from_above + middle + up)
        from_above, middle, down = down, next_own, next_down


@triton.jit
def _distribute(g, places, row, column, channel, size):
    """Return the gradients from a row of maxima to the pixel rows above, at and below it."""
    left, left_at = _load_maximum(g, places, (row, column - 1, channel), size)
    middle, middle_at = _load_maximum(g, places, (row, column, channel), size)
    right, right_at = _load_maximum(g, places, (row, column + 1, channel), size)
    gradients, sources = (left, middle, right), (left_at, middle_at, right_at)
    above = _collect(gradients, sources, 0)
    return above, _collect(gradients, sources, 3), _collect(gradients, sources, 6)


@triton.jit
def _collect(gradients, places, first: tl.constexpr):
    """Return a pixel's gradient from the maxima to its left, in its column and to its right.

    In the first of their windows the pixel is on the right, in the last on the left.
    """
    left, middle, right = gradients
    left_at, middle_at, right_at = places
    total = tl.where(left_at == first + 2, left, 0.0)
    total += tl.where(middle_at == first + 1, middle, 0.0)
    return total + tl.where(right_at == first, right, 0.0)


@triton.jit
def _load_maximum(g, places, place, size):
    return get(g, place, size, 0.0), get(places, place, size, NOWHERE)


@triton.jit(do_not_specialize=["h", "w", "ho", "wo"])
def _unpool_halves(
    g, places, dx, h, w, ho, wo, c, R: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr
):
    """Collect the gradients of 2R x 2BW pixels with stride 2.

    Windows are centered on even pixels, so pixels in odd rows or columns get gradients from both
    neighbors.
    """
    image, top, column, channel = locate_tile(ho, R, BW, BC)
    size, outputs = (h, w, c), (ho, wo, c)
    g += image * ho * wo * c
    places += image * ho * wo * c
    dx += image * h * w * c
    here, here_at = _load_maximum(g, places, (top, column, channel), outputs)
    right, right_at = _load_maximum(g, places, (top, column + 1, channel), outputs)
    for r in tl.static_range(R):
        row, below = (top + r) * 2, top + r + 1
        under, under_at = _load_maximum(g, places, (below, column, channel), outputs)
        across, across_at = _load_maximum(g, places, (below, column + 1, channel), outputs)
        even = tl.where(here_at == 4, here, 0.0)
        put(dx, (row, column * 2, channel), size, even)
        odd = tl.where(here_at == 5, here, 0.0) + tl.where(right_at == 3, right, 0.0)
        put(dx, (row, column * 2 + 1, channel), size, odd)
        even = tl.where(here_at == 7, here, 0.0) + tl.where(under_at == 1, under, 0.0)
        put(dx, (row + 1, column * 2, channel), size, even)
        odd = tl.where(here_at == 8, here, 0.0) + tl.where(right_at == 6, right, 0.0)
        odd += tl.where(under_at == 2, under, 0.0) + tl.where(across_at == 0, across, 0.0)
        put(dx, (row + 1, column * 2 + 1, channel), size, odd)
        here, here_at, right, right_at = under, under_at, across, across_at
