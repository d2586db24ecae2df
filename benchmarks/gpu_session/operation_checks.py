"""Check single fused operations on the device."""

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from faults import make_error_row
from torch import nn

from resnet_recipes import ops
from resnet_recipes.ops import batch_norm
from resnet_recipes.ops.norm import Epilogue, Norm

Check = tuple[str, Callable[[], dict]]


def iterate_decisive_checks(device: torch.device) -> Iterator[Check]:
    """Yield the checks that all other checks depend on."""
    if device.type == "cuda":
        yield "fused operations, bf16", partial(_check_operations, torch.bfloat16, device)
        yield "300 BatchNorms while another stream runs", partial(_check_determinism, device)


def iterate_dtype_checks(device: torch.device) -> Iterator[Check]:
    """Yield checks of fused operations in the other half precision, and with NaN."""
    if device.type == "cuda":
        yield "fused operations, fp16", partial(_check_operations, torch.float16, device)
    yield "NaN through batch_norm", partial(_check_nan, device)


def _check_operations(dtype: torch.dtype, device: torch.device) -> dict:
    """Compare every fused operation with torch, as before a run, and cache the result."""
    start = time.perf_counter()
    notes = ops.choose(device, dtype).notes
    row = {"value": not notes, "unit": "right", "note": f"{time.perf_counter() - start:.1f} s"}
    return row | {"fault": "; ".join(notes)} if notes else row


def _check_nan(device: torch.device) -> dict:
    """Put NaN into one channel; count values that are NaN in one result but not in the other."""
    x = torch.ones(2, 64, 8, 8, device=device)
    x[0, 5] = float("nan")
    x = x.contiguous(memory_format=torch.channels_last)
    masks = []
    for form in (batch_norm.unfused, batch_norm.fused):
        norm = Norm.of(nn.BatchNorm2d(64, device=device))
        masks.append(form(x, norm, Epilogue(relu=True)).isnan())
    return make_error_row(float((masks[0] != masks[1]).sum()), 0, "values differ")


def _check_determinism(device: torch.device) -> dict:
    """Repeat BatchNorm next to a busy stream; all results must be bit-identical."""
    norm = Norm.of(nn.BatchNorm2d(64, device=device))
    stream = torch.cuda.Stream(device)
    noise = torch.randn(2048, 2048, device=device)
    x = torch.randn(64, 64, 56, 56, device=device).bfloat16()
    leaf = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    wrong = torch.zeros((), device=device)
    first = None
    for _ in range(300):
        with torch.cuda.stream(stream):
            torch.mm(noise, noise)
        running = torch.zeros(2, 64, device=device)
        norm_copy = norm._replace(running_mean=running[0], running_var=running[1])
        y = batch_norm.fused(leaf, norm_copy, Epilogue(relu=True))
        gradients = torch.autograd.grad(y, [leaf, norm.weight, norm.bias], leaf.detach())
        results = [running, y.detach(), *gradients]
        first = first or results
        wrong += sum((a != b).any() for a, b in zip(results, first, strict=True))
    return make_error_row(float(wrong), 0, "of their results differ")
