"""Triton kernels that normalise and blur in one pass: NHWC, any size, sums in float32.

Each lane takes two columns of the input. Their blur needs four, so a lane also normalises the one
on either side.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels.launch import launch
from resnet_recipes.ops.kernels.maps import empty, get, inside, put, rectified

#: Rows, pairs of columns and channels of the input of one program. 64 threads then move 16 bytes at
#: a time.
TILE = 16, 4, 128
OPTIONS = {"num_warps": 2, "enable_fp_fusion": True}


def forward(
    x: Tensor,
    residual: Tensor | None,
    keep: Tensor | None,
    saved: Tensor,
    weight: Tensor,
    bias: Tensor,
    relu: bool,
    stride: int,
) -> tuple[Tensor, Tensor | None]:
    """Return the blurred output for [N, C, H, W] and None.

    With stride 2, the output and the blurred output.
    """
    (n, c, h, w), (height, pairs, channels), is_whole = x.shape, TILE, stride == 2
    y = empty(x, n, c, -(-h // stride), -(-w // stride))
    z = torch.empty_like(x) if is_whole else None
    flags = stride, residual is not None, keep is not None, relu
    grid = n * -(-h // height), -(-w // (2 * pairs)), -(-c // channels)
    launch(
        _apply,
        grid,
        (x.dtype, c, x.device, *flags),
        x,
        x if residual is None else residual,
        saved if keep is None else keep,
        z if is_whole else y,
        y,
        saved,
        weight,
        bias,
        h,
        w,
        c,
        *flags,
        *TILE,
        **OPTIONS,
    )
    return (z, y) if is_whole else (y, None)


@triton.jit(do_not_specialize=["h", "w"])
def _apply(
    x,
    residual,
    keep,
    z,
    y,
    saved,
    weight,
    bias,
    h,
    w,
    c,
    S: tl.constexpr,
    ADD: tl.constexpr,
    KEEP: tl.constexpr,
    RELU: tl.constexpr,
    R: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """Normalise and blur R rows, BP pairs of columns and BC channels.

    A row blurred sideways is used three times.
    """
    bands = (h + R - 1) // R
    image, top = tl.program_id(0) // bands, tl.program_id(0) % bands * R
    column = (tl.program_id(1) * BP + tl.arange(0, BP)[:, None]) * 2
    channel = tl.program_id(2) * BC + tl.arange(0, BC)[None, :]
    center = tl.load(saved + channel, mask=channel < c, other=0.0)
    scale = tl.load(saved + c + channel, mask=channel < c, other=0.0)
    scale *= tl.load(weight + channel, mask=channel < c, other=0.0)
    level = tl.load(bias + channel, mask=channel < c, other=0.0)
    factor = tl.load(keep + image) if KEEP else 1.0
    first = image.to(tl.int64) * h * w * c
    ho, wo = (h - 1) // S + 1, (w - 1) // S + 1
    y += image.to(tl.int64) * ho * wo * c
    x, residual, z = x + first, residual + first, z + first
    above, above_right = _sideways(
        x,
        residual,
        z,
        factor,
        center,
        scale,
        level,
        top - 1,
        column,
        channel,
        h,
        w,
        c,
        S,
        ADD,
        KEEP,
        RELU,
        False,
    )
    if S == 1:
        here, here_right = _sideways(
            x,
            residual,
            z,
            factor,
            center,
            scale,
            level,
            top,
            column,
            channel,
            h,
            w,
            c,
            S,
            ADD,
            KEEP,
            RELU,
            False,
        )
    for row in range(top, tl.minimum(top + R, h), S):
        if S == 2:
            here, _ = _sideways(
                x,
                residual,
                z,
                factor,
                center,
                scale,
                level,
                row,
                column,
                channel,
                h,
                w,
                c,
                S,
                ADD,
                KEEP,
                RELU,
                True,
            )
        below, below_right = _sideways(
            x,
            residual,
            z,
            factor,
            center,
            scale,
            level,
            row + 1,
            column,
            channel,
            h,
            w,
            c,
            S,
            ADD,
            KEEP,
            RELU,
            True,
        )
        put(y, row // S, column // S, channel, ho, wo, c, (above + here * 2.0 + below) * 0.0625)
        if S == 1:
            value = (above_right + here_right * 2.0 + below_right) * 0.0625
            put(y, row, column + 1, channel, ho, wo, c, value)
            above, above_right, here, here_right = here, here_right, below, below_right
        else:
            above = below


@triton.jit
def _sideways(
    x,
    residual,
    z,
    factor,
    center,
    scale,
    level,
    row,
    column,
    channel,
    h,
    w,
    c,
    S: tl.constexpr,
    ADD: tl.constexpr,
    KEEP: tl.constexpr,
    RELU: tl.constexpr,
    OWN: tl.constexpr,
):
    """Blur a normalised row horizontally, around each column and the next one.

    With stride 2, store the row.
    """
    left = _value(
        x,
        residual,
        factor,
        center,
        scale,
        level,
        row,
        column - 1,
        channel,
        h,
        w,
        c,
        ADD,
        KEEP,
        RELU,
    )
    even = _value(
        x, residual, factor, center, scale, level, row, column, channel, h, w, c, ADD, KEEP, RELU
    )
    odd = _value(
        x,
        residual,
        factor,
        center,
        scale,
        level,
        row,
        column + 1,
        channel,
        h,
        w,
        c,
        ADD,
        KEEP,
        RELU,
    )
    around = left + even * 2.0 + odd
    if S == 2:
        if OWN:
            put(z, row, column, channel, h, w, c, even)
            put(z, row, column + 1, channel, h, w, c, odd)
        return around, around
    right = _value(
        x,
        residual,
        factor,
        center,
        scale,
        level,
        row,
        column + 2,
        channel,
        h,
        w,
        c,
        ADD,
        KEEP,
        RELU,
    )
    return around, even + odd * 2.0 + right


@triton.jit
def _value(
    x,
    residual,
    factor,
    center,
    scale,
    level,
    row,
    column,
    channel,
    h,
    w,
    c,
    ADD: tl.constexpr,
    KEEP: tl.constexpr,
    RELU: tl.constexpr,
):
    """Return normalised pixels; those outside the map are zero."""
    value = (get(x, row, column, channel, h, w, c, 0.0).to(tl.float32) - center) * scale + level
    if KEEP:
        value *= factor
    if ADD:
        value += get(residual, row, column, channel, h, w, c, 0.0).to(tl.float32)
    if RELU:
        value = rectified(value)
    return tl.where(inside(row, column, channel, h, w, c), value, 0.0)


@triton.jit
def halved_gradient(g, row, m, channel, c, h, w):
    """Return the gradient of pixels, in float32, from that of their blur with stride 2.

    `row` numbers all pixels.

    An even line 2i takes half the gradient of line i, an odd line 2i + 1 a quarter each of those of
    i and i + 1. Both are the sum of lines l // 2 and (l + 1) // 2, divided by 4; columns likewise.
    """
    line, column = row // w % h, row % w
    ho, wo = (h - 1) // 2 + 1, (w - 1) // 2 + 1
    first = (row // (w * h) * ho + line // 2) * wo + column // 2
    start = g + first.to(tl.int64)[:, None] * c + channel[None, :]
    total = tl.zeros([row.shape[0], channel.shape[0]], tl.float32)
    for down in tl.static_range(2):
        for right in tl.static_range(2):
            step = (line % 2 * down * wo + column % 2 * right) * c
            known = ((line + down) // 2 < ho) & ((column + right) // 2 < wo) & (row < m)
            value = tl.load(
                start + step[:, None], mask=known[:, None] & (channel < c)[None, :], other=0.0
            )
            total += value.to(tl.float32)
    return total * 0.0625
