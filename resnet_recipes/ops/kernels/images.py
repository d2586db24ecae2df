"""Triton kernel that turns uint8 pixels into images: NHWC, float32 inside, rounded once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels.launch import launch

VALUES = 512        # values of a row made by one program
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}


def forward(
    pixels: Tensor, norm: Tensor, lines: Tensor | None, height: int, width: int, share: float, dtype: torch.dtype,
) -> Tensor:
    """Return [N, 3, height, width] of `dtype` for channels_last uint8 [N, 3, H, W]; see `ops.images.plain`."""
    n, _, h, w = pixels.shape
    images = torch.empty(n, 3, height, width, dtype=dtype, device=pixels.device, memory_format=torch.channels_last)
    flags = lines is not None, lines is not None and len(lines) > height + width
    launch(_make, (n * height, -(-3 * width // VALUES), 1), (dtype, pixels.device, *flags), pixels, norm,
           norm if lines is None else lines, images, h, w, height, width, share, *flags, VALUES, **OPTIONS)
    return images


@triton.jit
def _normalized(pixels, norm, at, channel, inside):
    value = tl.load(pixels + at, mask=inside, other=0).to(tl.float32)
    shift, scale = tl.load(norm + channel), tl.load(norm + 3 + channel)
    return shift + value * scale


@triton.jit(do_not_specialize=["h", "w", "height", "width"], do_not_specialize_on_alignment=["pixels", "lines"])
def _make(pixels, norm, lines, images, h, w, height, width, share, SOME: tl.constexpr, MIX: tl.constexpr,  # noqa: N803
          BV: tl.constexpr):  # noqa: N803
    """Make part of a row of an image: look up its row and columns, normalise, and mix in the partner's pixels."""
    image, row = tl.program_id(0) // height, tl.program_id(0) % height
    value = tl.program_id(1) * BV + tl.arange(0, BV)
    column, channel = value // 3, value % 3
    inside = column < width
    images += tl.program_id(0).to(tl.int64) * width * 3
    if SOME:
        row = tl.load(lines + row)
        column = tl.load(lines + height + column, mask=inside, other=0)
    at = (row * w + column) * 3 + channel
    result = _normalized(pixels + image.to(tl.int64) * h * w * 3, norm, at, channel, inside)
    if MIX:
        partner = tl.load(lines + height + width + image)
        other = _normalized(pixels + partner.to(tl.int64) * h * w * 3, norm, at, channel, inside)
        result += (other - result) * share
    tl.store(images + value, result.to(images.dtype.element_ty), mask=inside)
