"""The highest speeds that the device reaches: those of a copy and of a matrix product."""

from collections.abc import Iterator

import torch
from session import dtype_of, gpu_of

from resnet_recipes.doctor import rates


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield bytes and operations per second, with predictions from the datasheet."""
    gpu, side = gpu_of(device), 256 if quick else 8192
    yield {
        "case": "copy",
        "value": rates.traffic(device, 1 << (22 if quick else 30)) / 1e12,
        "unit": "TB/s",
        "predicted": gpu and gpu.traffic / 1e12,
    }
    yield {
        "case": f"matrix product {side}",
        "value": rates.products(device, dtype_of(device), side) / 1e12,
        "unit": "TFLOP/s",
        "predicted": gpu and gpu.flops / 1e12,
    }
