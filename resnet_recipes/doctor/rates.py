"""Measure the memory bandwidth and the matrix products of a device."""

import timeit
from collections.abc import Callable
from statistics import median

import torch

from resnet_recipes.ops.capture import capture


def measure_seconds(
    work: Callable[[], object], device: torch.device, times: int = 5, repeats: int = 10
) -> float:
    """Return the seconds per call of `work`: the median of `times` loops of `repeats` calls.

    A GPU replays the calls as a graph, because the host may need longer to launch an operation
    than the GPU to compute it.
    """

    def repeat() -> None:
        for _ in range(repeats):
            work()

    work()
    wait_for_device(device)
    if device.type == "cuda":
        with torch.cuda.device(device):
            lap = _capture_replay(repeat)
            return median(lap() for _ in range(times)) / repeats

    return median(timeit.repeat(repeat, repeat=times, number=1)) / repeats


def _capture_replay(calls: Callable[[], None]) -> Callable[[], float]:
    """Capture calls on the current GPU; return a function that replays and times them."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with capture() as graph:
        calls()

    def lap() -> float:
        graph.replay()  # keeps the GPU busy while the host issues the timed replay
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    return lap


def wait_for_device(device: torch.device) -> None:
    """Wait until a device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_traffic(device: torch.device, size: int = 1 << 30) -> float:
    """Return the bytes per second of a kernel that reads and writes `size` bytes each.

    A copy inside a CUDA graph is not a kernel: on an H200 it reached 0.65 of this speed.
    """
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    return 2 * size / measure_seconds(lambda: torch.neg(source, out=target), device)


def measure_products(device: torch.device, dtype: torch.dtype, size: int = 8192) -> float:
    """Return the FLOP/s of a product of two square matrices."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.float32).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * size**3 / measure_seconds(lambda: torch.mm(a, b, out=out), device)
