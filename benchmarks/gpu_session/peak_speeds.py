"""Peak speeds of the device: memory and matrix multiplication."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from faults import measure_or_report_fault
from runs import choose_dtype, find_gpu

from resnet_recipes.doctor import rates


def measure_rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield bytes and operations per second, with predictions from the datasheet."""
    count, size = (1 << 22, 256) if quick else (1 << 30, 8192)
    memory = partial(rates.measure_traffic, device, count)
    product = partial(rates.measure_products, device, choose_dtype(device), size)
    yield from measure_or_report_fault("memory", _measure_speed, memory, "TB/s", device)
    yield from measure_or_report_fault(
        f"matrix product {size}", _measure_speed, product, "TFLOP/s", device
    )


def _measure_speed(measure: Callable[[], float], unit: str, device: torch.device) -> Iterator[dict]:
    gpu = find_gpu(device)
    speed = measure()
    predicted = gpu and (gpu.traffic if unit == "TB/s" else gpu.flops) / 1e12
    yield {"value": speed / 1e12, "unit": unit, "predicted": predicted}
