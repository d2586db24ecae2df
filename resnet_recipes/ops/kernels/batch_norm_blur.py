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
from resnet_recipes.ops.norm import Epilogue, Norm

#: Rows, pairs of columns and channels of the input of one program. 64 threads then move 16 bytes at
#: a time.
TILE = 16, 4, 128
OPTIONS = {"num_warps": 2, "enable_fp_fusion": True}


def forward(
    x: Tensor, norm: Norm, moments: Tensor, epilogue: Epilogue
) -> tuple[Tensor, Tensor | None]:
    """Return the blurred output for [N, C, H, W] and None.

    With stride 2: the output and the blurred output.
    """
    residual, keep, relu, stride = epilogue[:4]
    (n, c, h, w), (height, pairs, channels) = x.shape, TILE
    y = empty(x, n, c, -(-h // stride), -(-w // stride))
    z = torch.empty_like(x) if stride == 2 else None
    grid = n * -(-h // height), -(-w // (2 * pairs)), -(-c // channels)
    key = x.dtype, c, x.device, stride, residual is None, keep is None, relu
    pointers = x, residual, keep, z, y, moments, norm.weight, norm.bias
    launch(_apply, grid, key, *pointers, h, w, c, stride, relu, *TILE, **OPTIONS)
    return (y, None) if z is None else (z, y)


@triton.jit(do_not_specialize=["h", "w"])
def _apply(
    x, residual, keep, z, y, moments, weight, bias, h, w, c,
    S: tl.constexpr, RELU: tl.constexpr, R: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Normalise and blur R rows, BP pairs of columns and BC channels.

    A row that was blurred horizontally is used three times.
    """
    bands = (h + R - 1) // R
    image, top = tl.program_id(0) // bands, tl.program_id(0) % bands * R
    column = (tl.program_id(1) * BP + tl.arange(0, BP)[:, None]) * 2
    channel = tl.program_id(2) * BC + tl.arange(0, BC)[None, :]
    center = tl.load(moments + channel, mask=channel < c, other=0.0)
    scale = tl.load(moments + c + channel, mask=channel < c, other=0.0)
    scale *= tl.load(weight + channel, mask=channel < c, other=0.0)
    level = tl.load(bias + channel, mask=channel < c, other=0.0)
    factor = tl.load(keep + image) if keep is not None else 1.0
    first = image.to(tl.int64) * h * w * c
    ho, wo = (h - 1) // S + 1, (w - 1) // S + 1
    x, y = x + first, y + image.to(tl.int64) * ho * wo * c
    if residual is not None:
        residual += first
    if z is not None:
        z += first
    norm, columns, size = (center, scale, level, factor), (column, channel), (h, w, c)
    above, above_right = _sideways(x, residual, None, norm, top - 1, columns, size, S, RELU)
    if S == 1:
        here, here_right = _sideways(x, residual, None, norm, top, columns, size, S, RELU)
    for row in range(top, tl.minimum(top + R, h), S):
        if S == 2:
            here, _ = _sideways(x, residual, z, norm, row, columns, size, S, RELU)
        below, below_right = _sideways(x, residual, z, norm, row + 1, columns, size, S, RELU)
        value = (above + here * 2.0 + below) * 0.0625
        put(y, (row // S, column // S, channel), (ho, wo, c), value)
        if S == 1:
            value = (above_right + here_right * 2.0 + below_right) * 0.0625
            put(y, (row, column + 1, channel), (ho, wo, c), value)
            above, above_right, here, here_right = here, here_right, below, below_right
        else:
            above = below


@triton.jit
def _sideways(x, residual, z, norm, row, columns, size, S: tl.constexpr, RELU: tl.constexpr):
    """Blur a normalised row horizontally, around each column and the next one.

    Store the row in `z` unless that is None.
    """
    column, channel = columns
    left = _value(x, residual, norm, (row, column - 1, channel), size, RELU)
    even = _value(x, residual, norm, (row, column, channel), size, RELU)
    odd = _value(x, residual, norm, (row, column + 1, channel), size, RELU)
    around = left + even * 2.0 + odd
    if z is not None:
        put(z, (row, column, channel), size, even)
        put(z, (row, column + 1, channel), size, odd)
    if S == 2:
        return around, around
    right = _value(x, residual, norm, (row, column + 2, channel), size, RELU)
    return around, even + odd * 2.0 + right


@triton.jit
def _value(x, residual, norm, place, size, RELU: tl.constexpr):
    """Return normalised pixels; those outside the map are zero."""
    center, scale, level, factor = norm
    value = ((get(x, place, size, 0.0).to(tl.float32) - center) * scale + level) * factor
    if residual is not None:
        value += get(residual, place, size, 0.0).to(tl.float32)
    if RELU:
        value = rectified(value)
    return tl.where(inside(place, size), value, 0.0)


@triton.jit
def halved_gradient(g, row, m, channel, c, h, w):
    """Return the gradient of pixels, in float32, from that of their blur with stride 2.

    `row` numbers all pixels. An even line 2i takes half the gradient of line i, an odd line 2i + 1
    a quarter each of those of i and i + 1. Both are the sum of lines l // 2 and (l + 1) // 2,
    divided by 4; columns likewise.
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
            known = known[:, None] & (channel < c)[None, :]
            total += tl.load(start + step[:, None], mask=known, other=0.0).to(tl.float32)
    return total * 0.0625
