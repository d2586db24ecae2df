"""The highest speeds that the device reaches: of memory and of matrix products."""

from collections.abc import Iterator
from functools import partial

import torch
from session import dtype_of, gpu_of
from verdict import tried

from resnet_recipes.doctor import rates


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield bytes and operations per second, with predictions from the datasheet."""
    yield from tried("memory", partial(_memory, device, 1 << (22 if quick else 30)))
    side = 256 if quick else 8192
    yield from tried(f"matrix product {side}", partial(_product, device, side))


def _memory(device: torch.device, size: int) -> Iterator[dict]:
    gpu, found = gpu_of(device), rates.traffic(device, size)
    predicted = gpu and gpu.traffic / 1e12
    yield {"value": found / 1e12, "unit": "TB/s", "predicted": predicted}


def _product(device: torch.device, side: int) -> Iterator[dict]:
    gpu, found = gpu_of(device), rates.products(device, dtype_of(device), side)
    predicted = gpu and gpu.flops / 1e12
    yield {"value": found / 1e12, "unit": "TFLOP/s", "predicted": predicted}
