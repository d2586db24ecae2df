"""Triton kernel of training crops: Pillow's antialiased filters, for images of all sizes at once, uint8 NHWC out.

Both directions are filtered in one pass, each line first, and rounded in between as Pillow does. A
pixel of the image is read four times by the bilinear filter, mostly from the cache, and nothing is
written before the crop.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels.launch import launch

PIXELS = 128  # of a crop, made by one program
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}


def forward(pixels: Tensor, cuts: Tensor, side: int) -> Tensor:
    """Return uint8 [N, side, side, 3] crops of planar images; see `ops.crops.plain`."""
    crops = torch.empty(len(cuts), side, side, 3, dtype=torch.uint8, device=pixels.device)
    launch(
        _crop,
        (len(cuts), -(-side * side // PIXELS), 1),
        (pixels.device,),
        pixels,
        cuts,
        crops,
        side,
        PIXELS,
        **OPTIONS,
    )
    return crops


@triton.jit
def _weight(distance, bicubic):
    """Return a filter's weight: a triangle of one pixel, or Keys's cubic of two with a = -0.5, as in Pillow."""
    far = tl.abs(distance)
    near = (1.5 * far - 2.5) * far * far + 1.0
    outer = ((2.5 - 0.5 * far) * far - 4.0) * far + 2.0
    cubic = tl.where(far < 1.0, near, tl.where(far < 2.0, outer, 0.0))
    return tl.where(bicubic, cubic, tl.maximum(1.0 - far, 0.0))


@triton.jit
def _reach(place, length, side, bicubic):
    """Return what a pixel of a crop covers along one axis: centre, first pixel, end, scale, and most pixels."""
    step = length.to(tl.float32) / side
    scale = tl.maximum(step, 1.0)
    reach = tl.where(bicubic, 2.0, 1.0) * scale
    centre = (place.to(tl.float32) + 0.5) * step
    first = tl.maximum(tl.floor(centre - reach + 0.5).to(tl.int32), 0)
    end = tl.minimum(tl.floor(centre + reach + 0.5).to(tl.int32), length)
    return centre, first, end, scale, (2.0 * reach).to(tl.int32) + 2


@triton.jit
def _level(x):
    return tl.minimum(tl.maximum(tl.floor(x + 0.5), 0.0), 255.0)


@triton.jit(do_not_specialize=["side"], do_not_specialize_on_alignment=["pixels"])
def _crop(pixels, cuts, crops, side, BV: tl.constexpr):
    """Make some pixels of a crop."""
    image = tl.program_id(0)
    place = tl.program_id(1) * BV + tl.arange(0, BV)
    inside = place < side * side
    cuts += image * 9
    height, width = tl.load(cuts + 1), tl.load(cuts + 2)
    tall, wide = tl.load(cuts + 5).to(tl.int32), tl.load(cuts + 6).to(tl.int32)
    mirrored, bicubic = tl.load(cuts + 7) != 0, tl.load(cuts + 8) != 0
    pixels += tl.load(cuts) + tl.load(cuts + 3) * width + tl.load(cuts + 4)
    plane, width = height * width, width.to(tl.int32)
    y, x = place // side, place % side
    x = tl.where(mirrored, side - 1 - x, x)
    middle, top, bottom, tall_scale, rows = _reach(y, tall, side, bicubic)
    centre, left, right, wide_scale, columns = _reach(x, wide, side, bicubic)
    none = tl.zeros([BV], tl.float32)
    red, green, blue, total = none, none, none, none
    for line in range(0, rows):
        row = top + line
        here = inside & (row < bottom)
        line_red, line_green, line_blue, line_total = none, none, none, none
        for step in range(0, columns):
            column = left + step
            seen = here & (column < right)
            weight = _weight((column.to(tl.float32) + 0.5 - centre) / wide_scale, bicubic)
            weight = tl.where(column < right, weight, 0.0)
            at = pixels + row * width + column
            line_red += weight * tl.load(at, mask=seen, other=0).to(tl.float32)
            line_green += weight * tl.load(at + plane, mask=seen, other=0).to(tl.float32)
            line_blue += weight * tl.load(at + 2 * plane, mask=seen, other=0).to(tl.float32)
            line_total += weight
        weight = _weight((row.to(tl.float32) + 0.5 - middle) / tall_scale, bicubic)
        weight = tl.where(row < bottom, weight, 0.0)
        red += weight * _level(line_red / line_total)
        green += weight * _level(line_green / line_total)
        blue += weight * _level(line_blue / line_total)
        total += weight
    total = tl.where(inside, total, 1.0)
    crops += image.to(tl.int64) * side * side * 3 + place * 3
    tl.store(crops, _level(red / total).to(tl.uint8), mask=inside)
    tl.store(crops + 1, _level(green / total).to(tl.uint8), mask=inside)
    tl.store(crops + 2, _level(blue / total).to(tl.uint8), mask=inside)
