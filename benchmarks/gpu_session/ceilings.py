"""The highest speeds that the device reaches: a copy, a matrix product, three convolutions."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from session import dtype_of, gpu_of

from resnet_recipes.doctor import rates


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield bytes and operations per second, with predictions from the datasheet."""
    gpu, dtype = gpu_of(device), dtype_of(device)
    yield {
        "case": "copy",
        "value": rates.traffic(device, 1 << (22 if quick else 30)) / 1e12,
        "unit": "TB/s",
        "predicted": gpu and gpu.traffic / 1e12,
    }
    side = 256 if quick else 8192
    yield {
        "case": f"matrix product {side}",
        "value": rates.products(device, dtype, side) / 1e12,
        "unit": "TFLOP/s",
        "predicted": gpu and gpu.flops / 1e12,
    }
    batch = 2 if quick else 256
    for channels, kernel, pixels in ((64, 3, 56), (256, 1, 14), (256, 3, 14)):
        images = torch.randn(batch, channels, pixels, pixels, device=device, dtype=dtype)
        images = images.to(memory_format=torch.channels_last)
        weights = torch.randn(channels, channels, kernel, kernel, device=device, dtype=dtype)
        weights = weights.to(memory_format=torch.channels_last)
        flops = 2 * images.numel() * channels * kernel**2
        taken = rates.seconds(
            lambda i=images, w=weights, p=kernel // 2: F.conv2d(i, w, padding=p), device
        )
        moved = 2 * 2 * images.numel()
        predicted = (
            gpu and flops / (max(flops / gpu.flops, moved / gpu.traffic) / gpu.convolution) / 1e12
        )
        yield {
            "case": f"convolution {kernel}x{kernel}, {channels} channels, {pixels} px",
            "unit": "TFLOP/s",
            "value": flops / taken / 1e12,
            "predicted": predicted,
        }
