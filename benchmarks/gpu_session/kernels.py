"""Single operations, forward and backward.

Torch's and ours, and the first convolution, padded or not.
"""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from session import dtype_of, gpu_of
from torch import Tensor, nn

from resnet_recipes.doctor.rates import seconds
from resnet_recipes.measure.roofline import FUSED_SHARE
from resnet_recipes.ops import batch_norm, blur, stem
from resnet_recipes.ops.norm import Epilogue, Norm

#: Channels and sides of ResNet-50's activations at 224 pixels, in its first and third stage.
SHAPES = ((256, 56), (1024, 14))

#: Image sides, and the numbers of channels to which new images could be padded.
SIDES, PADDED = (224, 88), (3, 4, 8)


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield GB/s of the bytes that a fused operation must move, and ms of the first convolution."""
    dtype, gpu, batch = dtype_of(device), gpu_of(device), 2 if quick else 256
    predicted = gpu and FUSED_SHARE * gpu.traffic / 1e9
    for channels, side in SHAPES:
        side = 8 if quick else side
        generator = torch.Generator(device).manual_seed(0)
        x = torch.randn(batch, channels, side, side, generator=generator, device=device)
        x = x.to(dtype, memory_format=torch.channels_last)
        size, place = 2 * x.numel(), f"{channels} channels, {side} px"
        for add in (False, True):
            case = f"BatchNorm{' + sum' * add} + ReLU, {place}"
            forms = {"torch": _norm(batch_norm.plain, x, add)}
            if device.type == "cuda":
                forms["fused"] = _norm(batch_norm.fused, x, add)
            yield from _timed(case, forms, (8 + 4 * add) * size, device, predicted)
        for stride in (1, 2):
            moved = (4 if stride == 1 else 2.5) * size
            forms = {"averages": blur.by_averages, "convolution": blur.by_convolution}
            forms |= {"fused": blur.fused} if device.type == "cuda" else {}
            calls = {name: _call(form, x, stride) for name, form in forms.items()}
            yield from _timed(f"blur, stride {stride}, {place}", calls, moved, device, predicted)
        norm = Norm.of(nn.BatchNorm2d(channels, device=device))
        forms = {"torch": stem.plain} | ({"fused": stem.fused} if device.type == "cuda" else {})
        calls = {name: _call(form, x, norm) for name, form in forms.items()}
        yield from _timed(f"stem, {place}", calls, 8.5 * size, device, predicted)
    for side in (32,) if quick else SIDES:
        for channels in PADDED:
            taken = seconds(_stem(batch, channels, side, device, dtype), device, times=3)
            yield {
                "case": f"first convolution, {side} px, {channels} channels",
                "value": 1e3 * taken,
                "unit": "ms",
            }


def _stem(
    batch: int, channels: int, side: int, device: torch.device, dtype: torch.dtype
) -> Callable[[], object]:
    """Return a call of the first convolution and its weights' gradient, by cuDNN's best choice."""
    shapes = (batch, channels, side, side), (64, channels, 7, 7), (batch, 64, side // 2, side // 2)
    images, weights, upstream = (
        torch.randn(shape, device=device).to(dtype, memory_format=torch.channels_last)
        for shape in shapes
    )
    weights.requires_grad_()

    def call() -> object:
        with torch.backends.cudnn.flags(benchmark=True):
            return torch.autograd.grad(
                F.conv2d(images, weights, stride=2, padding=3), weights, upstream
            )

    return call


def _timed(
    case: str,
    forms: dict[str, Callable],
    moved: float,
    device: torch.device,
    predicted: float | None,
) -> Iterator[dict]:
    for name, form in forms.items():
        taken = seconds(form, device, times=3, repeats=5 if device.type == "cuda" else 1)
        yield {
            "case": f"{case}: {name}",
            "value": moved / taken / 1e9,
            "unit": "GB/s",
            "predicted": predicted if name == "fused" else None,
        }


def _norm(function: Callable[..., Tensor], x: Tensor, add: bool) -> Callable[[], object]:
    """Return a call of BatchNorm forward and backward."""
    norm = Norm.of(nn.BatchNorm2d(x.shape[1], device=x.device))
    leaf, residual = (x.clone().requires_grad_() for _ in range(2))
    inputs = [leaf, norm.weight, norm.bias, *([residual] if add else [])]
    epilogue = Epilogue(residual if add else None, relu=True)
    return lambda: torch.autograd.grad(function(leaf, norm, epilogue), inputs, x)


def _call(function: Callable[..., Tensor], x: Tensor, *arguments: object) -> Callable[[], object]:
    """Return a call of an operation on one tensor, forward and backward."""
    leaf = x.clone().requires_grad_()
    with torch.no_grad():
        upstream = function(leaf, *arguments)
    return lambda: torch.autograd.grad(function(leaf, *arguments), [leaf], upstream)
