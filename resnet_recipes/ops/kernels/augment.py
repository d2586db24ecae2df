"""Triton kernels for RandAugment, one operation per image: uint8 NHWC, the same arithmetic as `pixel_ops`.

The first kernel turns operations that map grey levels into a 256-entry table for each channel; some
need the image's histogram first. In the second, each program changes part of a row, by table,
shift, rotation or neighbours.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels.launch import launch
from resnet_recipes.ops.pixel_ops import PIXEL_OPS

COUNTED, CHANGED = 2048, 512  # pixels counted at once; values changed by one program
OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}  # products are rounded as torch rounds them

(
    AUTOCONTRAST,
    EQUALIZE,
    POSTERIZE,
    ROTATE,
    SOLARIZE,
    SHEAR_X,
    SHEAR_Y,
    TRANSLATE_X,
    TRANSLATE_Y,
    COLOR,
    CONTRAST,
    BRIGHTNESS,
    SHARPNESS,
) = (tl.constexpr(number) for number in range(len(PIXEL_OPS)))


def forward(pixels: Tensor, drawn: Tensor) -> Tensor:
    """Return augmented pixels, contiguous uint8 [N, H, W, 3]; `drawn` [2, N] holds each operation's index and value."""
    (n, h, w, _), device = pixels.shape, pixels.device
    tables, changed = pixels.new_empty(n, 3, 256), torch.empty_like(pixels)
    launch(_tabulate, (n, 3, 1), (device,), pixels, drawn, tables, n, h * w, COUNTED, **OPTIONS)
    launch(
        _change,
        (n * h, -(-3 * w // CHANGED), 1),
        (device,),
        pixels,
        drawn,
        tables,
        changed,
        n,
        h,
        w,
        CHANGED,
        **OPTIONS,
    )
    return changed


@triton.jit
def _grey(red, green, blue):
    return (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16


@triton.jit
def _level(x):
    """Clip floats to 0..255 and truncate them."""
    return tl.minimum(tl.maximum(x, 0.0), 255.0).to(tl.int32)


@triton.jit
def _blend(degenerate, x, factor):
    return _level((x - degenerate) * factor + degenerate)


@triton.jit
def _integers(pixels, at, inside):
    return tl.load(pixels + at, mask=inside, other=0).to(tl.int32)


@triton.jit(do_not_specialize=["n", "area"], do_not_specialize_on_alignment=["pixels"])
def _tabulate(pixels, drawn, tables, n, area, BV: tl.constexpr):
    """Write the lookup table of a channel, 256 entries, if the image's operation maps grey levels."""
    image, channel = tl.program_id(0), tl.program_id(1)
    kind, value = tl.load(drawn + image).to(tl.int32), tl.load(drawn + n + image)
    pixels += image.to(tl.int64) * area * 3
    old = tl.arange(0, 256)
    counts = tl.zeros([256], tl.int32)
    greys = tl.zeros([BV], tl.int32)
    if kind <= EQUALIZE:
        for start in range(0, area, BV):
            pixel = start + tl.arange(0, BV)
            counts += tl.histogram(
                _integers(pixels, pixel * 3 + channel, pixel < area), 256, mask=pixel < area
            )
    if kind == CONTRAST:
        for start in range(0, area, BV):
            pixel = start + tl.arange(0, BV)
            red, green = (
                _integers(pixels, pixel * 3, pixel < area),
                _integers(pixels, pixel * 3 + 1, pixel < area),
            )
            grey = _grey(red, green, _integers(pixels, pixel * 3 + 2, pixel < area))
            greys += tl.where(pixel < area, grey, 0)
    highest = tl.max(tl.where(counts > 0, old, 0), 0)
    new = old
    if kind == AUTOCONTRAST:
        lowest = tl.min(tl.where(counts > 0, old, 255), 0)
        scale = tl.where(
            lowest == highest, 1.0, 255.0 / tl.maximum(highest - lowest, 1).to(tl.float32)
        )
        offset = tl.where(lowest == highest, 0.0, -lowest.to(tl.float32) * scale) + 1e-3
        new = _level(old.to(tl.float32) * scale + offset)
    if kind == EQUALIZE:
        step = (area - tl.sum(tl.where(old == highest, counts, 0), 0)) // 255
        before = tl.cumsum(counts, 0) - counts
        new = tl.where(step > 0, tl.minimum((step // 2 + before) // tl.maximum(step, 1), 255), old)
    if kind == POSTERIZE:
        new = old & ((255 << (8 - value.to(tl.int32))) & 255)
    if kind == SOLARIZE:
        new = tl.where(old < value.to(tl.int32), old, 255 - old)
    if kind == CONTRAST:
        mean = (2 * tl.sum(greys, 0) + area) // (2 * area)
        new = _blend(mean.to(tl.float32), old.to(tl.float32), value)
    if kind == BRIGHTNESS:
        new = _level(old.to(tl.float32) * value)
    tl.store(tables + (image * 3 + channel) * 256 + old, new.to(tl.uint8))


@triton.jit
def _displaced(pixels, first, apart, position, size, shift, inside):
    """Interpolate linearly, in steps of 1/128, along the line that begins at `first`; black outside."""
    whole = tl.floor(shift)
    part, here = shift - whole, position + whole.to(tl.int32)
    late = part >= 0.5  # Pillow repeats a border for half a pixel
    shown = (here >= tl.where(late, -1, 0)) & (here < tl.where(late, size - 1, size))
    before = _integers(pixels, first + tl.minimum(tl.maximum(here, 0), size - 1) * apart, inside)
    after = _integers(pixels, first + tl.minimum(tl.maximum(here + 1, 0), size - 1) * apart, inside)
    part = tl.floor(part * 128 + 0.5).to(tl.int32)
    return tl.where(shown, (((after - before) * part) >> 7) + before, 0)


@triton.jit
def _rotated(pixels, x, y, channel, h, w, degrees, inside):
    """Interpolate bilinearly at the position a pixel comes from; black outside."""
    angle = degrees * 0.017453292519943295
    cos, sin = tl.cos(angle), tl.sin(angle)
    right, down = (
        (x.to(tl.float32) - (w - 1) / 2) * (2 / w),
        (y.to(tl.float32) - (h - 1) / 2) * (2 / w),
    )
    across, along = right * cos - down * sin, (right * sin + down * cos) * (w / h)
    shown = (tl.abs(across) < 1.0) & (tl.abs(along) < 1.0)
    column = tl.minimum(tl.maximum(((across + 1.0) * w - 1.0) / 2, 0.0), w - 1.0)
    row = tl.minimum(tl.maximum(((along + 1.0) * h - 1.0) / 2, 0.0), h - 1.0)
    left, top = tl.floor(column), tl.floor(row)
    over, under = column - left, row - top
    first = (top.to(tl.int32) * w + left.to(tl.int32)) * 3 + channel
    next_column = tl.where(left < w - 1.0, 3, 0)
    next_row = tl.where(top < h - 1.0, w * 3, 0)
    total = _integers(pixels, first, inside) * ((1.0 - over) * (1.0 - under))
    total += _integers(pixels, first + next_column, inside) * (over * (1.0 - under))
    total += _integers(pixels, first + next_row, inside) * ((1.0 - over) * under)
    total += _integers(pixels, first + next_row + next_column, inside) * (over * under)
    return tl.where(shown, _level(total + 0.00390625), 0)


@triton.jit
def _sharpened(pixels, at, x, y, h, w, factor, inside):
    """Scale the difference from the smoothed image; border pixels are unchanged."""
    own = _integers(pixels, at, inside)
    inner = (x > 0) & (x < tl.where((y > 0) & (y < h - 1), w - 1, 0))
    total = own * 4
    for line in tl.static_range(-1, 2):
        for step in tl.static_range(-1, 2):
            total += _integers(pixels, at + (line * w + step) * 3, inner)
    smooth = (2 * total + 13) // 26
    return tl.where(inner, _blend(smooth.to(tl.float32), own.to(tl.float32), factor), own)


@triton.jit(do_not_specialize=["n", "h", "w"], do_not_specialize_on_alignment=["pixels"])
def _change(pixels, drawn, tables, changed, n, h, w, BV: tl.constexpr):
    """Apply the image's operation to part of a row."""
    image, y = tl.program_id(0) // h, tl.program_id(0) % h
    value = tl.program_id(1) * BV + tl.arange(0, BV)
    x, channel = value // 3, value % 3
    inside = x < w
    kind, strength = tl.load(drawn + image).to(tl.int32), tl.load(drawn + n + image)
    pixels += image.to(tl.int64) * h * w * 3
    changed += image.to(tl.int64) * h * w * 3
    at = y * w * 3 + value
    if kind == ROTATE:
        new = _rotated(pixels, x, y, channel, h, w, strength, inside)
    elif (kind == SHEAR_X) | (kind == TRANSLATE_X):
        shift = tl.where(kind == SHEAR_X, strength * (y + 0.5), strength)
        new = _displaced(pixels, y * w * 3 + channel, 3, x, w, shift, inside)
    elif (kind == SHEAR_Y) | (kind == TRANSLATE_Y):
        shift = tl.where(kind == SHEAR_Y, strength * (x.to(tl.float32) + 0.5), strength)
        new = _displaced(pixels, value, w * 3, y, h, shift, inside)
    elif kind == COLOR:
        red, green = (
            _integers(pixels, at - channel, inside),
            _integers(pixels, at - channel + 1, inside),
        )
        grey = _grey(red, green, _integers(pixels, at - channel + 2, inside))
        new = _blend(grey.to(tl.float32), _integers(pixels, at, inside).to(tl.float32), strength)
    elif kind == SHARPNESS:
        new = _sharpened(pixels, at, x, y, h, w, strength, inside)
    else:
        entry = (image * 3 + channel) * 256 + _integers(pixels, at, inside)
        new = tl.load(tables + entry, mask=inside, other=0).to(tl.int32)
    tl.store(changed + at, new.to(tl.uint8), mask=inside)
