"""Every convolution of ResNet-50: output, gradient of the input, gradient of the weights."""

from collections import Counter
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from session import dtype_of, gpu_of
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from resnet_recipes.doctor.rates import seconds
from resnet_recipes.estimating.roofline import Convolution, convolutions

SIDES, BATCH = (224, 88, 176), 256


def rows(device: torch.device, quick: bool, search: str) -> Iterator[dict]:
    """Yield the speed of each distinct convolution, and the share of the roofline of all."""
    torch.backends.cudnn.benchmark = search == "searched"
    gpu, batch = gpu_of(device), 2 if quick else BATCH
    for side in (32,) if quick else SIDES:
        best = spent = 0.0
        for shape, times in _shapes("resnet18" if quick else "resnet50", side).items():
            for kind, call in _calls(shape, batch, device).items():
                taken = seconds(call, device, times=3, repeats=1 if quick else 5)
                flops, moved = batch * shape.flops, 2 * (batch * (shape.read + shape.written))
                least = gpu and max(flops / gpu.flops, moved / gpu.traffic)
                best, spent = best + times * (least or 0.0), spent + times * taken
                yield _row(
                    f"{side} px: {_name(shape)}, {kind}", taken, (flops, moved, least), times
                )
        if gpu:
            yield {
                "case": f"{side} px: all convolutions of a step",
                "value": best / spent,
                "unit": "of the roofline",
                "predicted": gpu.convolution,
                "note": f"{1e3 * spent:.1f} ms",
            }


def _row(case: str, taken: float, work: tuple[float, float, float | None], times: int) -> dict:
    """Return the row of one operation; `work` is its flops, its bytes and its least seconds."""
    flops, moved, least = work
    share = f", {least / taken:.2f} of the roofline" if least else ""
    return {
        "case": case,
        "value": flops / taken / 1e12,
        "unit": "TFLOP/s",
        "gigabytes_per_second": moved / taken / 1e9,
        "microseconds": 1e6 * taken,
        "times": times,
        "note": f"{moved / taken / 1e9:,.0f} GB/s, {1e6 * taken:,.0f} us, {times} x{share}",
    }


def _shapes(model: str, side: int) -> Counter[Convolution]:
    """Return how often each shape occurs; what follows a convolution makes no difference to it."""
    return Counter(shape._replace(relu=True, adds=False) for shape in convolutions(model, side))


def _name(shape: Convolution) -> str:
    kernel = f"{shape.kernel}x{shape.kernel}" + (f"/{shape.stride}" if shape.stride > 1 else "")
    return f"{kernel} {shape.inputs}->{shape.outputs} at {shape.side}"


def _calls(shape: Convolution, batch: int, device: torch.device) -> dict[str, Callable[[], Tensor]]:
    """Return the three operations of a convolution, the images' own gradient left out."""
    sizes = (
        (batch, shape.inputs, shape.side, shape.side),
        (shape.outputs, shape.inputs, shape.kernel, shape.kernel),
        (batch, shape.outputs, shape.out_side, shape.out_side),
    )
    images, weights, upstream = (
        torch.randn(size, device=device).to(dtype_of(device), memory_format=torch.channels_last)
        for size in sizes
    )
    place = {"stride": shape.stride, "padding": shape.kernel // 2}
    calls = {
        "output": lambda: F.conv2d(images, weights, **place),
        "weights' gradient": lambda: conv2d_weight(images, weights.shape, upstream, **place),
    }
    if shape.inputs > 3:
        calls["input's gradient"] = lambda: conv2d_input(images.shape, weights, upstream, **place)
    return calls
