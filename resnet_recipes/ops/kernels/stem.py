"""Triton kernels of BatchNorm, ReLU, the 3x3 maximum with stride 1 and the blur with stride 2.

NHWC, any size.

A maximum and its place are found together as one integer: the bits of a float32, the last four
replaced by 8 minus the place, so that the first of equal values is the largest. Positive floats
sort like their bits, and no others have a gradient.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels.batch_norm import spread
from resnet_recipes.ops.kernels.launch import launch
from resnet_recipes.ops.kernels.maps import empty, get, inside, put
from resnet_recipes.ops.kernels.statistics import statistics
from resnet_recipes.ops.kernels.sums import add_up, counters, fitting, shares_of
from resnet_recipes.ops.norm import Norm, Saved

#: Rows, pairs of columns and channels of the input per tile. 64 threads then move 16 bytes at a
#: time, or 8 for the gradient, which needs more registers per value.
TILE, GRADIENT_TILE = (16, 8, 64), (16, 4, 64)
OPTIONS = {"num_warps": 2, "enable_fp_fusion": True}

#: Programs of the gradient that fit on a multiprocessor at once.
RESIDENT = 6
GRADIENT_OPTIONS = fitting(2, RESIDENT)

#: The place of a maximum that is not above zero.
NOWHERE = tl.constexpr(9)


def forward(x: Tensor, norm: Norm) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output, the places of the maxima, and the statistics.

    Output and places (uint8) are channels_last [N, C, H, W], as the input is. The places of a
    window are numbered row by row, 0 to 8; 9 means that nothing in it is above zero. [2, C] are the
    mean and 1 / standard deviation.
    """
    (n, c, h, w), (height, pairs, channels) = x.shape, TILE
    moments = statistics(x, norm)
    y = empty(x, n, c, (h - 1) // 2 + 1, (w - 1) // 2 + 1)
    winner = torch.empty_like(x, dtype=torch.uint8)
    grid = n * -(-h // height), -(-w // (2 * pairs)), -(-c // channels)
    pointers = x, y, winner, moments, norm.weight, norm.bias
    launch(_pool, grid, (x.dtype, c, x.device), *pointers, h, w, c, *TILE, **OPTIONS)
    return y, winner, moments


def backward(g: Tensor, winner: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
    """Return the gradients of the input, and [2, C]: of weight and bias."""
    x = saved.x
    (n, c, h, w), (height, pairs, channels) = x.shape, GRADIENT_TILE
    tiles, columns = n * -(-h // height) * -(-w // (2 * pairs)), -(-c // channels)
    blocks, own = shares_of(tiles, 1, columns, x.device, RESIDENT)
    shares, sums = saved.weight.new_empty(2, blocks, c), saved.weight.new_empty(2, c)
    gated = torch.empty_like(x)
    pointers = g, winner, x, gated, shares, counters(x.device), saved.moments, sums
    numbers = h, w, c, tiles, own, blocks
    grid, key = (blocks, columns, 1), (x.dtype, c, x.device)
    launch(_unpool, grid, key, *pointers, *numbers, *GRADIENT_TILE, **GRADIENT_OPTIONS)
    return spread(gated, saved, sums, relu=False), sums


@triton.jit(do_not_specialize=["h", "w"])
def _pool(
    x, y, winner, moments, weight, bias, h, w, c,
    R: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Compute R / 2 rows, BP columns and BC channels of the output.

    Each lane pools three columns of the input.
    """
    bands = (h + R - 1) // R
    image, top = tl.program_id(0) // bands, tl.program_id(0) % bands * R
    column = (tl.program_id(1) * BP + tl.arange(0, BP)[:, None]) * 2
    channel = tl.program_id(2) * BC + tl.arange(0, BC)[None, :]
    center = tl.load(moments + channel, mask=channel < c, other=0.0)
    scale = tl.load(moments + c + channel, mask=channel < c, other=0.0)
    scale *= tl.load(weight + channel, mask=channel < c, other=0.0)
    level = tl.load(bias + channel, mask=channel < c, other=0.0) - center * scale
    norm, size, outputs = (scale, level), (h, w, c), ((h - 1) // 2 + 1, (w - 1) // 2 + 1, c)
    x += image.to(tl.int64) * h * w * c
    winner += image.to(tl.int64) * h * w * c
    y += image.to(tl.int64) * outputs[0] * outputs[1] * c
    a, b, d = _peaks(x, norm, top - 2, column, channel, size)
    e, f, g = _peaks(x, norm, top - 1, column, channel, size)
    i, j, k = _peaks(x, norm, top, column, channel, size)
    highest = _highest(a, e, i), _highest(b, f, j), _highest(d, g, k)
    odd = _blurred(highest, top - 1, column, size)
    a, b, d, e, f, g = e, f, g, i, j, k
    for row in range(top, tl.minimum(top + R, h), 2):
        i, j, k = _peaks(x, norm, row + 1, column, channel, size)
        highest = _highest(a, e, i), _highest(b, f, j), _highest(d, g, k)
        _tell(winner, highest, row, column, channel, size)
        total = odd + _blurred(highest, row, column, size) * 2.0
        a, b, d = _peaks(x, norm, row + 2, column, channel, size)
        highest = _highest(e, i, a), _highest(f, j, b), _highest(g, k, d)
        _tell(winner, highest, row + 1, column, channel, size)
        odd = _blurred(highest, row + 1, column, size)
        put(y, (row // 2, column // 2, channel), outputs, (total + odd) * 0.0625)
        a, b, d, e, f, g = i, j, k, a, b, d


@triton.jit
def _peaks(x, norm, row, column, channel, size):
    """Return the largest of three normalised pixels of a row, around each of three columns.

    The places are with them.
    """
    far_left = _key(x, norm, (row, column - 2, channel), size)
    left = _key(x, norm, (row, column - 1, channel), size)
    middle = _key(x, norm, (row, column, channel), size)
    right = _key(x, norm, (row, column + 1, channel), size)
    far_right = _key(x, norm, (row, column + 2, channel), size)
    return (
        tl.maximum(tl.maximum(far_left + 2, left + 1), middle),
        tl.maximum(tl.maximum(left + 2, middle + 1), right),
        tl.maximum(tl.maximum(middle + 2, right + 1), far_right),
    )


@triton.jit
def _key(x, norm, place, size):
    """Return normalised pixels as integers without a place; below zero outside the map."""
    scale, level = norm
    value = get(x, place, size, 0.0).to(tl.float32) * scale + level
    return tl.where(inside(place, size), value.to(tl.int32, bitcast=True) & -16, -1024)


@triton.jit
def _highest(above, here, below):
    """Return the largest of three rows, with its place, or zero."""
    return tl.maximum(tl.maximum(above + 6, here + 3), tl.maximum(below, 0))


@triton.jit
def _blurred(highest, row, column, size):
    """Return a horizontally blurred row of maxima; outside the map they are zero."""
    left, middle, right = highest
    h, w, _ = size
    end = tl.where((row >= 0) & (row < h), w, 0)
    left = tl.where((column > 0) & (column <= end), left, 0).to(tl.float32, bitcast=True)
    middle = tl.where(column < end, middle, 0).to(tl.float32, bitcast=True)
    right = tl.where(column + 1 < end, right, 0).to(tl.float32, bitcast=True)
    return left + middle * 2.0 + right


@triton.jit
def _tell(winner, highest, row, column, channel, size):
    """Write the places of two columns of maxima."""
    _, even, odd = highest
    even = tl.where(even < 16, NOWHERE, 8 - (even & 15))
    odd = tl.where(odd < 16, NOWHERE, 8 - (odd & 15))
    put(winner, (row, column, channel), size, even)
    put(winner, (row, column + 1, channel), size, odd)


@triton.jit(do_not_specialize=["h", "w", "tiles", "own", "blocks"])
def _unpool(
    g, winner, x, gated, shares, counters, moments, sums, h, w, c, tiles, own, blocks,
    R: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Store the gradient of normalised pixels, tile by tile, and sum those of weight and bias."""
    known = tl.program_id(1) * BC + tl.arange(0, BC)
    channel = known[None, :]
    center = tl.load(moments + channel, mask=channel < c, other=0.0)
    bands, strips = (h + R - 1) // R, (w + 2 * BP - 1) // (2 * BP)
    size, outputs = (h, w, c), ((h - 1) // 2 + 1, (w - 1) // 2 + 1, c)
    total = tl.zeros([BP, BC], tl.float32), tl.zeros([BP, BC], tl.float32)
    first = tl.program_id(0) * own
    for tile in range(first, tl.minimum(first + own, tiles)):
        image, top = (tile // (bands * strips)).to(tl.int64), tile // strips % bands * R
        column = (tile % strips * BP + tl.arange(0, BP)[:, None]) * 2
        start = image * h * w * c
        pixels = x + start, gated + start, center
        winners, upstream = winner + start, g + image * outputs[0] * outputs[1] * c
        # A pixel gets its gradient from maxima in the row above, in its own and in the row below;
        # they get theirs from one line of the output's (even rows) or two (odd rows).
        before = _line(upstream, top // 2 - 1, column, channel, outputs)
        line = _line(upstream, top // 2, column, channel, outputs)
        odd = _odd(before, line)
        _, _, above = _given(winners, odd, top - 1, column, channel, size)
        _, beside, down = _given(winners, _even(line), top, column, channel, size)
        for row in range(top, tl.minimum(top + R, h), 2):
            line = _line(upstream, row // 2, column, channel, outputs)
            next_line = _line(upstream, row // 2 + 1, column, channel, outputs)
            odd = _odd(line, next_line)
            up, next_beside, last = _given(winners, odd, row + 1, column, channel, size)
            total = _gate(total, pixels, (above, beside, up), row, column, channel, size)
            even = _even(next_line)
            up, beside, next_down = _given(winners, even, row + 2, column, channel, size)
            total = _gate(total, pixels, (down, next_beside, up), row + 1, column, channel, size)
            above, down = last, next_down
    share = tl.sum(total[0], 0), tl.sum(total[1], 0)
    add_up(share, shares, counters, moments, sums, blocks, known, c, 16)


@triton.jit
def _line(g, line, column, channel, size):
    """Return what a line of the output's gradient gives to four maxima, times 4.

    They are those of column - 1 to column + 2.
    """
    column = column // 2
    left = get(g, (line, column - 1, channel), size, 0.0).to(tl.float32)
    middle = get(g, (line, column, channel), size, 0.0).to(tl.float32)
    right = get(g, (line, column + 1, channel), size, 0.0).to(tl.float32)
    return left + middle, middle * 2.0, middle + right, right * 2.0


@triton.jit
def _even(line):
    """Return what the maxima of an even row get."""
    return line[0] * 2.0, line[1] * 2.0, line[2] * 2.0, line[3] * 2.0


@triton.jit
def _odd(above, below):
    """Return what the maxima of an odd row get, from the lines above and below it."""
    return above[0] + below[0], above[1] + below[1], above[2] + below[2], above[3] + below[3]


@triton.jit
def _given(winner, g, row, column, channel, size):
    """Return what a row of maxima gives to the pixels above it, in it and below it.

    Each for two columns.
    """
    a = get(winner, (row, column - 1, channel), size, NOWHERE).to(tl.int32)
    b = get(winner, (row, column, channel), size, NOWHERE).to(tl.int32)
    d = get(winner, (row, column + 1, channel), size, NOWHERE).to(tl.int32)
    e = get(winner, (row, column + 2, channel), size, NOWHERE).to(tl.int32)
    even, odd = ((a, b, d), (g[0], g[1], g[2])), ((b, d, e), (g[1], g[2], g[3]))
    return (_of(even, 0), _of(odd, 0)), (_of(even, 3), _of(odd, 3)), (_of(even, 6), _of(odd, 6))


@triton.jit
def _of(maxima, place: tl.constexpr):
    """Return the sum of those of three gradients whose maximum is one pixel.

    The pixel has a different place in each of the three windows.
    """
    places, gradients = maxima
    left, middle, right = places
    left_g, middle_g, right_g = gradients
    total = tl.where(left == place + 2, left_g, 0.0) + tl.where(middle == place + 1, middle_g, 0.0)
    return total + tl.where(right == place, right_g, 0.0)


@triton.jit
def _gate(total, pixels, given, row, column, channel, size):
    """Store the gradient of two columns of pixels, given from three rows; add it to both sums."""
    above, beside, below = given
    even, odd = above[0] + beside[0] + below[0], above[1] + beside[1] + below[1]
    total = _add(total, pixels, even, (row, column, channel), size)
    return _add(total, pixels, odd, (row, column + 1, channel), size)


@triton.jit
def _add(total, pixels, g, place, size):
    """Store the gradient of pixels and add it to both sums."""
    x, gated, center = pixels
    g = tl.where(inside(place, size), g * 0.0625, 0.0)
    put(gated, place, size, g)
    value = get(x, place, size, 0.0).to(tl.float32)
    return total[0] + g, total[1] + g * (value - center)
