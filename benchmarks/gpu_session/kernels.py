"""Single operations, forward and backward: torch's and ours, and the first convolution."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import contenders
import torch
from session import dtype_of, gpu_of
from torch import Tensor, nn
from verdict import tried

from resnet_recipes.doctor.rates import seconds
from resnet_recipes.estimating.roofline import FUSED_SHARE, START
from resnet_recipes.network.fuse import FoldedConv2d
from resnet_recipes.ops import batch_norm, blur, max_pool
from resnet_recipes.ops.norm import Epilogue, Norm


class Case(NamedTuple):
    """An operation on activations as in ResNet-50 on images of 224 pixels."""

    name: str
    channels: int
    side: int
    accesses: float  # elements that the fused operation moves, for each of its input's
    launches: int  # of the fused operation
    forms: dict[str, Callable]
    arguments: Callable[[Tensor], tuple]


SUM, NO_SUM = "BatchNorm + sum + ReLU", "BatchNorm + ReLU"
NORMS = {"torch": batch_norm.plain, "fused": batch_norm.fused}
BLURS = {"torch": contenders.blurred, "fused": blur.fused}
POOLS = {"torch": max_pool.plain, "fused": max_pool.fused}

SIDES = 224, 88
FIRST = {"torch": nn.Conv2d, "folded": FoldedConv2d}


def rows(device: torch.device, quick: bool) -> Iterator[dict]:
    """Yield GB/s of the bytes that a fused operation must move, and ms of the first convolution."""
    torch.backends.cudnn.benchmark = True
    batch = 2 if quick else 256
    for side in (32,) if quick else SIDES:
        for name, kind in FIRST.items():
            text = f"first convolution, {side} px: {name}"
            yield from tried(text, partial(_first, batch, side, kind, device))
    forms = [(case, name) for case in CASES for name in case.forms]
    # ours last: a kernel that reads out of bounds takes the GPU from all that follows
    for case, name in sorted(forms, key=lambda form: form[1] == "fused"):
        side = 8 if quick else case.side
        if name != "fused" or device.type == "cuda":
            text = f"{case.name}, {case.channels} channels, {side} px: {name}"
            shape = batch, case.channels, side, side
            yield from tried(text, partial(_operation, case, name, shape, device))


def _operation(
    case: Case, name: str, shape: tuple[int, ...], device: torch.device
) -> Iterator[dict]:
    """Yield the row of an operation in one of its forms."""
    generator, gpu = torch.Generator(device).manual_seed(0), gpu_of(device)
    x = torch.randn(shape, generator=generator, device=device)
    x = x.to(dtype_of(device), memory_format=torch.channels_last)
    call = _call(case.forms[name], x, case.arguments(x))
    taken = seconds(call, device, times=3, repeats=5 if device.type == "cuda" else 1)
    moved, predicted = case.accesses * x.nbytes, None
    if gpu and name == "fused":
        predicted = moved / (moved / FUSED_SHARE / gpu.traffic + START * case.launches) / 1e9
    yield {"value": moved / taken / 1e9, "unit": "GB/s", "predicted": predicted}


def _norm(x: Tensor) -> Norm:
    return Norm.of(nn.BatchNorm2d(x.shape[1], device=x.device))


def _followed(x: Tensor) -> tuple[Norm, Epilogue]:
    """Return the arguments of a block's last BatchNorm, whose output two others use."""
    return _norm(x), Epilogue(x.clone().requires_grad_(), relu=True, twice=True)


CASES = (
    Case(NO_SUM, 64, 56, 8, 4, NORMS, lambda x: (_norm(x), Epilogue(relu=True))),
    Case(NO_SUM, 256, 14, 8, 4, NORMS, lambda x: (_norm(x), Epilogue(relu=True))),
    Case(SUM, 256, 56, 12, 4, NORMS, _followed),
    Case(SUM, 1024, 14, 12, 4, NORMS, _followed),
    Case("blur, stride 1", 128, 56, 4, 2, BLURS, lambda x: (1,)),
    Case("blur, stride 2", 256, 56, 2.5, 2, BLURS, lambda x: (2,)),
    Case("max pool, stride 1", 64, 112, 5, 2, POOLS, lambda x: (1,)),
    Case("max pool, stride 2", 64, 112, 2.75, 2, POOLS, lambda x: (2,)),
)


def _call(form: Callable, x: Tensor, arguments: tuple) -> Callable[[], object]:
    """Return a call of an operation, forward and backward for all that requires a gradient."""
    leaf = x.clone().requires_grad_()
    nested = (part for each in arguments for part in (each if isinstance(each, tuple) else ()))
    inputs = [part for part in nested if isinstance(part, Tensor) and part.requires_grad]

    def outputs() -> tuple[Tensor, ...]:
        found = form(leaf, *arguments)
        return found if isinstance(found, tuple) else (found,)

    upstream = [torch.ones_like(y) for y in outputs()]
    return lambda: torch.autograd.grad(outputs(), [leaf, *inputs], upstream)


def _first(batch: int, side: int, kind: type[nn.Conv2d], device: torch.device) -> Iterator[dict]:
    """Yield the row of the first convolution of float32 images, and its weights' gradient."""
    dtype = dtype_of(device)
    images = torch.randn(batch, 3, side, side, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    layer = kind(3, 64, 7, 2, 3, bias=False)
    layer.to(device, dtype, memory_format=torch.channels_last)

    def output() -> Tensor:
        return layer(images.to(dtype))

    upstream = torch.ones_like(output())
    taken = seconds(lambda: torch.autograd.grad(output(), layer.weight, upstream), device, times=3)
    yield {"value": 1e3 * taken, "unit": "ms"}
