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

from resnet_recipes.ops.kernels import batch_norm
from resnet_recipes.ops.kernels.arrivals import arrivals
from resnet_recipes.ops.kernels.launch import launch
from resnet_recipes.ops.kernels.maps import empty, get, inside, put

#: Rows, pairs of columns and channels of the input per tile. 64 threads then move 16 bytes at a
#: time, or 8 for the gradient, which needs more registers per value.
TILE, GRADIENT_TILE = (16, 8, 64), (16, 4, 64)
OPTIONS = {"num_warps": 2, "enable_fp_fusion": True}

#: Programs of the gradient that fit on a multiprocessor at once.
RESIDENT = 6
GRADIENT_OPTIONS = batch_norm.fitting(2, RESIDENT)

#: The place of a maximum that is not above zero.
NOWHERE = tl.constexpr(9)


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor, Tensor],
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output for channels_last [N, C, H, W], the places of the maxima, uint8 [N, C, H, W], and [2, C].

    The places of a window are numbered row by row, 0 to 8; 9 means that nothing in it is above
    zero. [2, C] are the mean and 1 / standard deviation.
    """
    (n, c, h, w), (height, pairs, channels) = x.shape, TILE
    saved = batch_norm.statistics(x, running, momentum, eps)
    y, winner = (
        empty(x, n, c, (h - 1) // 2 + 1, (w - 1) // 2 + 1),
        torch.empty_like(x, dtype=torch.uint8),
    )
    grid = n * -(-h // height), -(-w // (2 * pairs)), -(-c // channels)
    launch(
        _pool,
        grid,
        (x.dtype, c, x.device),
        x,
        y,
        winner,
        saved,
        weight,
        bias,
        h,
        w,
        c,
        *TILE,
        **OPTIONS,
    )
    return y, winner, saved


def backward(
    g: Tensor,
    winner: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    saved: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the input, and [2, C]: of weight and bias."""
    (n, c, h, w), (height, pairs, channels) = x.shape, GRADIENT_TILE
    tiles, columns = n * -(-h // height) * -(-w // (2 * pairs)), -(-c // channels)
    blocks, own = batch_norm.shares_of(tiles, 1, columns, x.device, RESIDENT)
    gated, shares, sums = (
        torch.empty_like(x),
        weight.new_empty(2, blocks, c),
        weight.new_empty(2, c),
    )
    launch(
        _unpool,
        (blocks, columns, 1),
        (x.dtype, c, x.device),
        g,
        winner,
        x,
        gated,
        shares,
        arrivals(x.device),
        saved,
        sums,
        h,
        w,
        c,
        tiles,
        own,
        blocks,
        *GRADIENT_TILE,
        **GRADIENT_OPTIONS,
    )
    return batch_norm.spread(gated, x, None, saved, weight, bias, sums, relu=False), sums


@triton.jit(do_not_specialize=["h", "w"])
def _pool(
    x, y, winner, saved, weight, bias, h, w, c, R: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr
):
    """Compute R / 2 rows, BP columns and BC channels of the output.

    Each lane pools three columns of the input.
    """
    bands = (h + R - 1) // R
    image, top = tl.program_id(0) // bands, tl.program_id(0) % bands * R
    column = (tl.program_id(1) * BP + tl.arange(0, BP)[:, None]) * 2
    channel = tl.program_id(2) * BC + tl.arange(0, BC)[None, :]
    center = tl.load(saved + channel, mask=channel < c, other=0.0)
    scale = tl.load(saved + c + channel, mask=channel < c, other=0.0)
    scale *= tl.load(weight + channel, mask=channel < c, other=0.0)
    level = tl.load(bias + channel, mask=channel < c, other=0.0) - center * scale
    ho, wo = (h - 1) // 2 + 1, (w - 1) // 2 + 1
    x += image.to(tl.int64) * h * w * c
    winner += image.to(tl.int64) * h * w * c
    y += image.to(tl.int64) * ho * wo * c
    a, b, d = _peaks(x, scale, level, top - 2, column, channel, h, w, c)
    e, f, g = _peaks(x, scale, level, top - 1, column, channel, h, w, c)
    i, j, k = _peaks(x, scale, level, top, column, channel, h, w, c)
    odd = _blurred(_highest(a, e, i), _highest(b, f, j), _highest(d, g, k), top - 1, column, h, w)
    a, b, d, e, f, g = e, f, g, i, j, k
    for row in range(top, tl.minimum(top + R, h), 2):
        i, j, k = _peaks(x, scale, level, row + 1, column, channel, h, w, c)
        even_key, odd_key = _highest(b, f, j), _highest(d, g, k)
        _tell(winner, even_key, odd_key, row, column, channel, h, w, c)
        total = odd + _blurred(_highest(a, e, i), even_key, odd_key, row, column, h, w) * 2.0
        a, b, d = _peaks(x, scale, level, row + 2, column, channel, h, w, c)
        even_key, odd_key = _highest(f, j, b), _highest(g, k, d)
        _tell(winner, even_key, odd_key, row + 1, column, channel, h, w, c)
        odd = _blurred(_highest(e, i, a), even_key, odd_key, row + 1, column, h, w)
        put(y, row // 2, column // 2, channel, ho, wo, c, (total + odd) * 0.0625)
        a, b, d, e, f, g = i, j, k, a, b, d


@triton.jit
def _peaks(x, scale, level, row, column, channel, h, w, c):
    """Return the largest of three normalised pixels of a row, with places, around each of three columns."""
    far_left = _key(x, scale, level, row, column - 2, channel, h, w, c)
    left = _key(x, scale, level, row, column - 1, channel, h, w, c)
    middle = _key(x, scale, level, row, column, channel, h, w, c)
    right = _key(x, scale, level, row, column + 1, channel, h, w, c)
    far_right = _key(x, scale, level, row, column + 2, channel, h, w, c)
    return (
        tl.maximum(tl.maximum(far_left + 2, left + 1), middle),
        tl.maximum(tl.maximum(left + 2, middle + 1), right),
        tl.maximum(tl.maximum(middle + 2, right + 1), far_right),
    )


@triton.jit
def _key(x, scale, level, row, column, channel, h, w, c):
    """Return normalised pixels as integers without a place.

    Those outside the map are below zero.
    """
    value = get(x, row, column, channel, h, w, c, 0.0).to(tl.float32) * scale + level
    return tl.where(
        inside(row, column, channel, h, w, c), value.to(tl.int32, bitcast=True) & -16, -1024
    )


@triton.jit
def _highest(above, here, below):
    """Return the largest of three rows, with its place, or zero."""
    return tl.maximum(tl.maximum(above + 6, here + 3), tl.maximum(below, 0))


@triton.jit
def _blurred(left, middle, right, row, column, h, w):
    """Return a horizontally blurred row of maxima; outside the map they are zero."""
    end = tl.where((row >= 0) & (row < h), w, 0)
    left = tl.where((column > 0) & (column <= end), left, 0).to(tl.float32, bitcast=True)
    middle = tl.where(column < end, middle, 0).to(tl.float32, bitcast=True)
    right = tl.where(column + 1 < end, right, 0).to(tl.float32, bitcast=True)
    return left + middle * 2.0 + right


@triton.jit
def _tell(winner, even, odd, row, column, channel, h, w, c):
    """Write the places of two columns of maxima."""
    put(winner, row, column, channel, h, w, c, tl.where(even < 16, NOWHERE, 8 - (even & 15)))
    put(winner, row, column + 1, channel, h, w, c, tl.where(odd < 16, NOWHERE, 8 - (odd & 15)))


@triton.jit(do_not_specialize=["h", "w", "tiles", "own", "blocks"])
def _unpool(
    g,
    winner,
    x,
    gated,
    shares,
    arrivals,
    saved,
    sums,
    h,
    w,
    c,
    tiles,
    own,
    blocks,
    R: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """Store the gradient of normalised pixels, tile by tile, and sum those of weight and bias."""
    block = tl.program_id(0)
    known = tl.program_id(1) * BC + tl.arange(0, BC)
    channel = known[None, :]
    center = tl.load(saved + channel, mask=channel < c, other=0.0)
    bands, strips = (h + R - 1) // R, (w + 2 * BP - 1) // (2 * BP)
    ho, wo = (h - 1) // 2 + 1, (w - 1) // 2 + 1
    sum_g = tl.zeros([BP, BC], tl.float32)
    sum_gx = tl.zeros([BP, BC], tl.float32)
    for tile in range(block * own, tl.minimum(block * own + own, tiles)):
        image, top = (tile // (bands * strips)).to(tl.int64), tile // strips % bands * R
        column = (tile % strips * BP + tl.arange(0, BP)[:, None]) * 2
        first = image * h * w * c
        upstream = g + image * ho * wo * c
        # Names end in _p for even columns, in _q for odd ones. A pixel gets its gradient from
        # maxima in the row above, in its own and in the row below; they get theirs from one line of
        # the output's (even rows) or two (odd rows).
        p, q, r, s = _line(upstream, top // 2 - 1, column, channel, ho, wo, c)
        i, j, k, m = _line(upstream, top // 2, column, channel, ho, wo, c)
        _, _, _, _, from_p, from_q = _given(
            winner + first, p + i, q + j, r + k, s + m, top - 1, column, channel, h, w, c
        )
        _, _, beside_p, beside_q, down_p, down_q = _given(
            winner + first, i * 2.0, j * 2.0, k * 2.0, m * 2.0, top, column, channel, h, w, c
        )
        for row in range(top, tl.minimum(top + R, h), 2):
            p, q, r, s = _line(upstream, row // 2, column, channel, ho, wo, c)
            i, j, k, m = _line(upstream, row // 2 + 1, column, channel, ho, wo, c)
            up_p, up_q, next_p, next_q, last_p, last_q = _given(
                winner + first, p + i, q + j, r + k, s + m, row + 1, column, channel, h, w, c
            )
            sum_g, sum_gx = _gate(
                x + first,
                gated + first,
                from_p + beside_p + up_p,
                center,
                sum_g,
                sum_gx,
                row,
                column,
                channel,
                h,
                w,
                c,
            )
            sum_g, sum_gx = _gate(
                x + first,
                gated + first,
                from_q + beside_q + up_q,
                center,
                sum_g,
                sum_gx,
                row,
                column + 1,
                channel,
                h,
                w,
                c,
            )
            from_p, from_q, beside_p, beside_q = down_p, down_q, next_p, next_q
            up_p, up_q, next_p, next_q, down_p, down_q = _given(
                winner + first,
                i * 2.0,
                j * 2.0,
                k * 2.0,
                m * 2.0,
                row + 2,
                column,
                channel,
                h,
                w,
                c,
            )
            sum_g, sum_gx = _gate(
                x + first,
                gated + first,
                from_p + beside_p + up_p,
                center,
                sum_g,
                sum_gx,
                row + 1,
                column,
                channel,
                h,
                w,
                c,
            )
            sum_g, sum_gx = _gate(
                x + first,
                gated + first,
                from_q + beside_q + up_q,
                center,
                sum_g,
                sum_gx,
                row + 1,
                column + 1,
                channel,
                h,
                w,
                c,
            )
            from_p, from_q, beside_p, beside_q = last_p, last_q, next_p, next_q
    batch_norm.add_up(
        shares,
        arrivals,
        saved,
        sums,
        tl.sum(sum_g, 0),
        tl.sum(sum_gx, 0),
        block,
        blocks,
        known,
        c,
        16,
        BC,
    )


@triton.jit
def _line(g, line, column, channel, ho, wo, c):
    """Return 4 times what a line of the output's gradient gives to the maxima of column - 1 to column + 2."""
    left = get(g, line, column // 2 - 1, channel, ho, wo, c, 0.0).to(tl.float32)
    middle = get(g, line, column // 2, channel, ho, wo, c, 0.0).to(tl.float32)
    right = get(g, line, column // 2 + 1, channel, ho, wo, c, 0.0).to(tl.float32)
    return left + middle, middle * 2.0, middle + right, right * 2.0


@triton.jit
def _given(winner, g, h_, k, m, row, column, channel, h, w, c):
    """Return what a row of maxima gives to the pixels above it, in it and below it, for two columns each."""
    a = get(winner, row, column - 1, channel, h, w, c, NOWHERE).to(tl.int32)
    b = get(winner, row, column, channel, h, w, c, NOWHERE).to(tl.int32)
    d = get(winner, row, column + 1, channel, h, w, c, NOWHERE).to(tl.int32)
    e = get(winner, row, column + 2, channel, h, w, c, NOWHERE).to(tl.int32)
    return (
        _of(a, g, b, h_, d, k, 0),
        _of(b, h_, d, k, e, m, 0),
        _of(a, g, b, h_, d, k, 3),
        _of(b, h_, d, k, e, m, 3),
        _of(a, g, b, h_, d, k, 6),
        _of(b, h_, d, k, e, m, 6),
    )


@triton.jit
def _of(left, left_g, middle, middle_g, right, right_g, place: tl.constexpr):
    """Return the sum of those of three gradients whose maximum is one pixel, which has a different place in each."""
    total = tl.where(left == place + 2, left_g, 0.0) + tl.where(middle == place + 1, middle_g, 0.0)
    return total + tl.where(right == place, right_g, 0.0)


@triton.jit
def _gate(x, gated, g, center, sum_g, sum_gx, row, column, channel, h, w, c):
    """Store the gradient of pixels and add it to both sums."""
    g = tl.where(inside(row, column, channel, h, w, c), g * 0.0625, 0.0)
    put(gated, row, column, channel, h, w, c, g)
    value = get(x, row, column, channel, h, w, c, 0.0).to(tl.float32)
    return sum_g + g, sum_gx + g * (value - center)
