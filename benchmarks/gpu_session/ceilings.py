"""Peak speeds of the device: memory and matrix multiplication."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from session import dtype_of, gpu_of
from verdict import tried

from resnet_recipes.doctor import rates


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield bytes and operations per second, with predictions from the datasheet."""
    size, side = (1 << 22, 256) if quick else (1 << 30, 8192)
    memory = partial(rates.measure_traffic, device, size)
    product = partial(rates.measure_products, device, dtype_of(device), side)
    yield from tried("memory", _speed, memory, "TB/s", device)
    yield from tried(f"matrix product {side}", _speed, product, "TFLOP/s", device)


def _speed(measure: Callable[[], float], unit: str, device: torch.device) -> Iterator[dict]:
    gpu, found = gpu_of(device), measure()
    predicted = gpu and (gpu.traffic if unit == "TB/s" else gpu.flops) / 1e12
    yield {"value": found / 1e12, "unit": unit, "predicted": predicted}
