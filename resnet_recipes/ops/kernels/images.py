"""Triton kernel that turns uint8 pixels into images: NHWC, float32 inside, rounded once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels.launch import launch

VALUES = 512  # values of a row made by one program
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}


def forward(
    pixels: Tensor,
    norm: Tensor,
    lines: Tensor | None,
    chosen: tuple[int, int],
    size: tuple[int, int],
    share: float,
    dtype: torch.dtype,
    channels: int,
) -> Tensor:
    """Return [N, channels, *size] of `dtype` for channels_last uint8 [N, 3, H, W]; see `ops.images.plain`."""
    (n, _, h, w), (height, width) = pixels.shape, size
    images = torch.empty(
        n,
        channels,
        height,
        width,
        dtype=dtype,
        device=pixels.device,
        memory_format=torch.channels_last,
    )
    flags = (
        lines is not None,
        tuple(chosen) != tuple(size),
        lines is not None and len(lines) > sum(chosen),
    )
    launch(
        _make,
        (n * height, -(-channels * width // VALUES), 1),
        (dtype, pixels.device, channels, *flags),
        pixels,
        norm,
        norm if lines is None else lines,
        images,
        h,
        w,
        *chosen,
        height,
        width,
        share,
        *flags,
        channels,
        VALUES,
        **OPTIONS,
    )
    return images


@triton.jit
def _between(position, full, size):
    """Return the pixels before and after a position on a line resized to `size`, and the weight of the second."""
    halves = tl.maximum((2 * position + 1) * full - size, 0)  # in integers, which are exact
    before = halves // (2 * size)
    return (
        before,
        tl.minimum(before + 1, full - 1),
        (halves - before * 2 * size).to(tl.float32) / (2 * size),
    )


@triton.jit
def _read(pixels, at, inside):
    return tl.load(pixels + at, mask=inside, other=0).to(tl.float32)


@triton.jit
def _pixel(pixels, top, bottom, down, left, right, over, inside, RESIZE: tl.constexpr):
    """Return the value of a pixel, or of a point between four of them."""
    value = _read(pixels, top + left, inside)
    if RESIZE:
        value += (_read(pixels, top + right, inside) - value) * over
        below = _read(pixels, bottom + left, inside)
        below += (_read(pixels, bottom + right, inside) - below) * over
        value += (below - value) * down
    return value


@triton.jit(
    do_not_specialize=["h", "w", "rows", "columns", "height", "width"],
    do_not_specialize_on_alignment=["pixels", "lines"],
)
def _make(
    pixels,
    norm,
    lines,
    images,
    h,
    w,
    rows,
    columns,
    height,
    width,
    share,
    SOME: tl.constexpr,
    RESIZE: tl.constexpr,
    MIX: tl.constexpr,
    C: tl.constexpr,
    BV: tl.constexpr,
):
    """Make part of a row of an image: look up its row and columns, mix in the partner's pixels, and normalise."""
    image, row = tl.program_id(0) // height, tl.program_id(0) % height
    value = tl.program_id(1) * BV + tl.arange(0, BV)
    column, channel = value // C, value % C
    exists = column < width
    inside = exists & (channel < 3)  # the others are zero
    images += tl.program_id(0).to(tl.int64) * width * C
    top, bottom, down = row, row, 0.0
    left, right, over = column, column, 0.0
    if RESIZE:
        top, bottom, down = _between(row, rows, height)
        left, right, over = _between(column, columns, width)
    if SOME:
        top = tl.load(lines + top)
        left = tl.load(lines + rows + left, mask=inside, other=0)
        if RESIZE:
            bottom = tl.load(lines + bottom)
            right = tl.load(lines + rows + right, mask=inside, other=0)
    top, bottom, left, right = top * w * 3, bottom * w * 3, left * 3 + channel, right * 3 + channel
    area = h.to(tl.int64) * w * 3
    result = _pixel(pixels + image * area, top, bottom, down, left, right, over, inside, RESIZE)
    if MIX:
        partner = tl.load(lines + rows + columns + image)
        result += (
            _pixel(pixels + partner * area, top, bottom, down, left, right, over, inside, RESIZE)
            - result
        ) * share
    shift, scale = (
        tl.load(norm + channel, mask=inside, other=0),
        tl.load(norm + 3 + channel, mask=inside, other=0),
    )
    tl.store(images + value, (shift + result * scale).to(images.dtype.element_ty), mask=exists)
