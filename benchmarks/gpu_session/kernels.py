"""Single operations in torch and ours, forward and backward, and the first convolution."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import training_loops
from faults import measure_or_report_fault
from runs import choose_dtype, find_gpu
from torch import Tensor, nn

from resnet_recipes.doctor.rates import measure_seconds
from resnet_recipes.network.fuse import FoldedConv2d
from resnet_recipes.ops import batch_norm, blur, max_pool
from resnet_recipes.ops.norm import Epilogue, Norm
from resnet_recipes.planning.roofline import FUSED_BANDWIDTH_FRACTION, KERNEL_START_SECONDS


class Case(NamedTuple):
    """An operation on activations as in ResNet-50 on images of 224 pixels."""

    name: str
    channels: int
    size: int
    accesses: float  # elements that the fused operation moves per input element
    launches: int  # launches of the fused operation
    forms: dict[str, Callable]
    arguments: Callable[[Tensor], tuple]


NORM_SUM_RELU, NORM_RELU = "BatchNorm + sum + ReLU", "BatchNorm + ReLU"
NORMS = {"torch": batch_norm.unfused, "fused": batch_norm.fused}
BLURS = {"torch": training_loops.blur, "fused": blur.fused}
POOLS = {"torch": max_pool.unfused, "fused": max_pool.fused}

SIZES = 224, 88
FIRST_CONVOLUTIONS = {"torch": nn.Conv2d, "folded": FoldedConv2d}


def measure_rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield GB/s of the bytes that a fused operation must move, and the first convolution in ms."""
    torch.backends.cudnn.benchmark = True
    batch = 2 if quick else 256
    for size in (32,) if quick else SIZES:
        for name, kind in FIRST_CONVOLUTIONS.items():
            text = f"first convolution, {size} px: {name}"
            yield from measure_or_report_fault(text, _measure_first, batch, size, kind, device)
    # our kernels run last: one that reads out of bounds breaks the GPU for all later kernels
    for name in ("torch", "fused") if device.type == "cuda" else ("torch",):
        for case in CASES:
            size = 8 if quick else case.size
            text = f"{case.name}, {case.channels} channels, {size} px: {name}"
            yield from measure_or_report_fault(
                text, _measure_operation, case, name, batch, size, device
            )


def _measure_operation(
    case: Case, name: str, batch: int, size: int, device: torch.device
) -> Iterator[dict]:
    """Yield the row of one form of an operation, forward and backward."""
    generator = torch.Generator(device).manual_seed(0)
    gpu = find_gpu(device)
    x = torch.randn(batch, case.channels, size, size, generator=generator, device=device)
    x = x.to(choose_dtype(device), memory_format=torch.channels_last).requires_grad_()
    arguments = case.arguments(x)
    parts = [x, *(part for each in arguments if isinstance(each, tuple) for part in each)]
    inputs = [part for part in parts if isinstance(part, Tensor) and part.requires_grad]

    def compute_outputs() -> tuple[Tensor, ...]:
        outputs = case.forms[name](x, *arguments)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    upstream = [torch.ones_like(y) for y in compute_outputs()]
    repeats = 5 if device.type == "cuda" else 1
    seconds = measure_seconds(
        lambda: torch.autograd.grad(compute_outputs(), inputs, upstream),
        device,
        times=3,
        repeats=repeats,
    )
    moved_bytes = case.accesses * x.nbytes
    predicted = None
    if gpu and name == "fused":
        predicted = (
            moved_bytes
            / (
                moved_bytes / FUSED_BANDWIDTH_FRACTION / gpu.traffic
                + KERNEL_START_SECONDS * case.launches
            )
            / 1e9
        )
    yield {"value": moved_bytes / seconds / 1e9, "unit": "GB/s", "predicted": predicted}


def _make_norm(x: Tensor) -> Norm:
    return Norm.of(nn.BatchNorm2d(x.shape[1], device=x.device))


def _make_last_arguments(x: Tensor) -> tuple[Norm, Epilogue]:
    """Return the arguments of a block's last BatchNorm, whose output has two consumers."""
    residual = x.detach().clone().requires_grad_()
    return _make_norm(x), Epilogue(residual, relu=True, returns_pair=True)


CASES = (
    Case(NORM_RELU, 64, 56, 8, 4, NORMS, lambda x: (_make_norm(x), Epilogue(relu=True))),
    Case(NORM_RELU, 256, 14, 8, 4, NORMS, lambda x: (_make_norm(x), Epilogue(relu=True))),
    Case(NORM_SUM_RELU, 256, 56, 12, 4, NORMS, _make_last_arguments),
    Case(NORM_SUM_RELU, 1024, 14, 12, 4, NORMS, _make_last_arguments),
    Case("blur, stride 1", 128, 56, 4, 2, BLURS, lambda x: (1,)),
    Case("blur, stride 2", 256, 56, 2.5, 2, BLURS, lambda x: (2,)),
    Case("max pool, stride 1", 64, 112, 5, 2, POOLS, lambda x: (1,)),
    Case("max pool, stride 2", 64, 112, 2.75, 2, POOLS, lambda x: (2,)),
)


def _measure_first(
    batch: int, size: int, kind: type[nn.Conv2d], device: torch.device
) -> Iterator[dict]:
    """Yield the row of the first convolution of float32 images, and its weight gradient."""
    dtype = choose_dtype(device)
    images = torch.randn(batch, 3, size, size, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    layer = kind(3, 64, 7, 2, 3, bias=False)
    layer.to(device, dtype, memory_format=torch.channels_last)

    def compute_output() -> Tensor:
        return layer(images.to(dtype))

    upstream = torch.ones_like(compute_output())
    seconds = measure_seconds(
        lambda: torch.autograd.grad(compute_output(), layer.weight, upstream), device, times=3
    )
    yield {"value": 1e3 * seconds, "unit": "ms"}
