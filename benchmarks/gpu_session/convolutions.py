"""All convolutions of ResNet-50: output, input gradient, weight gradient."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from faults import measure_or_report_fault
from runs import choose_dtype, find_gpu
from torch import Tensor

from resnet_recipes.doctor.rates import measure_seconds
from resnet_recipes.planning.roofline import (
    KERNEL_START_SECONDS,
    Convolution,
    GpuDatasheet,
    iterate_convolutions,
)

SIZES = (224, 88, 176)
BATCH = 256


def measure_rows(device: torch.device, quick: bool, search: str) -> Iterator[dict]:
    """Yield the speed of each operation of each convolution, and their fraction of the roofline."""
    torch.backends.cudnn.benchmark = search == "searched"
    model, batch = ("resnet18", 2) if quick else ("resnet50", BATCH)
    for size in (32,) if quick else SIZES:
        rows = []
        # the layers after a convolution do not matter
        convolutions = iterate_convolutions(model, size)
        shapes = Counter(each._replace(relu=True, adds=False) for each in convolutions)
        for shape, layers_of_shape in shapes.items():
            case = f"{size} px: {name_convolution(shape)}"
            repeats = 1 if quick else 5
            for row in measure_or_report_fault(case, _measure, case, shape, batch, repeats, device):
                rows.append(row | {"layers": layers_of_shape})
                yield rows[-1]
        if find_gpu(device) and not any("fault" in row for row in rows):
            yield _sum_layers(size, rows, find_gpu(device))


def _measure(
    case: str, shape: Convolution, batch: int, repeats: int, device: torch.device
) -> Iterator[dict]:
    """Yield the rows of a convolution's operations."""
    gpu = find_gpu(device)
    flops = batch * shape.flops
    moved_bytes = 2 * (batch * (shape.input_elements + shape.output_elements))
    least_seconds = max(flops / gpu.flops, moved_bytes / gpu.traffic) if gpu else 0.0
    for kind, call in list_calls(shape, *make_operands(shape, batch, device)).items():
        seconds = measure_seconds(call, device, times=3, repeats=repeats)
        fraction = f", {least_seconds / seconds:.2f} of the roofline" if gpu else ""
        yield {
            "case": f"{case}, {kind}",
            "value": flops / seconds / 1e12,
            "unit": "TFLOP/s",
            "gigabytes_per_second": moved_bytes / seconds / 1e9,
            "microseconds": 1e6 * seconds,
            "least_microseconds": 1e6 * least_seconds,
            "note": f"{moved_bytes / seconds / 1e9:,.0f} GB/s, {1e6 * seconds:,.0f} us{fraction}",
        }


def _sum_layers(size: int, rows: list[dict], gpu: GpuDatasheet) -> dict:
    """Return the fraction of the roofline that all convolutions of a step reach together."""
    least, microseconds = (
        sum(row["layers"] * row[key] for row in rows)
        for key in ("least_microseconds", "microseconds")
    )
    starts = 1e6 * KERNEL_START_SECONDS * sum(row["layers"] for row in rows)
    return {
        "case": f"{size} px: all convolutions of a step",
        "value": least / microseconds,
        "unit": "of the roofline",
        "predicted": least / (least / gpu.convolution + starts),
        "note": f"{microseconds / 1e3:.1f} ms",
    }


def name_convolution(shape: Convolution) -> str:
    """Return the name of a shape, as "1x1 64->256 at 56"."""
    kernel = f"{shape.kernel}x{shape.kernel}" + (f"/{shape.stride}" if shape.stride > 1 else "")
    return f"{kernel} {shape.inputs}->{shape.outputs} at {shape.input_size}"


def make_operands(shape: Convolution, batch: int, device: torch.device) -> list[Tensor]:
    """Return random images, weights and gradient of the output, in channels_last memory."""
    sizes = (
        (batch, shape.inputs, shape.input_size, shape.input_size),
        (shape.outputs, shape.inputs, shape.kernel, shape.kernel),
        (batch, shape.outputs, shape.output_size, shape.output_size),
    )
    return [
        torch.randn(size, device=device).to(choose_dtype(device), memory_format=torch.channels_last)
        for size in sizes
    ]


def list_calls(
    shape: Convolution, images: Tensor, weights: Tensor, upstream: Tensor
) -> dict[str, Callable[[], Tensor]]:
    """Return the three operations of a convolution, without the gradient of the images."""
    stride = [shape.stride] * 2
    padding = [shape.kernel // 2] * 2

    def compute_gradient(position: int) -> Tensor:
        # the placeholder for images in torch.nn.grad is not channels_last, which causes copies
        output_mask = [position == each for each in range(3)]
        form = stride, padding, [1, 1], False, [0, 0], 1
        gradients = torch.ops.aten.convolution_backward(
            upstream, images, weights, None, *form, output_mask
        )
        return gradients[position]

    calls = {
        "output": partial(F.conv2d, images, weights, stride=stride, padding=padding),
        "weights' gradient": partial(compute_gradient, 1),
    }
    if shape.inputs > 3:
        calls["input's gradient"] = partial(compute_gradient, 0)
    return calls
