"""Normalise uint8 pixels for a model."""

from functools import lru_cache

import torch
from torch import Tensor

#: ImageNet's statistics in 0..255 units, red, green, blue.
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)


def normalize(pixels: Tensor) -> Tensor:
    """Return (pixels - MEAN) / STD, float32 [N, 3, H, W] in channels_last.

    One pass over uint8 of any strides.
    """
    shift, scale = shift_and_scale(pixels.device).view(2, 1, 3, 1, 1)
    return torch.addcmul(shift, pixels, scale).contiguous(memory_format=torch.channels_last)


@lru_cache
def shift_and_scale(device: torch.device) -> Tensor:
    """Return -MEAN / STD and 1 / STD, rounded once, from float64; [2, 3]."""
    mean, std = torch.tensor((MEAN, STD), dtype=torch.float64)
    return torch.stack([-mean / std, 1 / std]).float().to(device)
