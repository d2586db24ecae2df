"""Triton kernels for cross-entropy: one program per row, float32 inside."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from resnet_recipes.ops.kernels.arrivals import arrivals, last
from resnet_recipes.ops.kernels.launch import launch

CLASSES = 1024  # classes of a row processed at once
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}


def forward(logits: Tensor, targets: Tensor, binary: bool, divisor: float) -> Tensor:
    """Return the loss, a float32 scalar, of contiguous [N, K] logits and targets."""
    (n, k), device = logits.shape, logits.device
    losses, loss = (torch.empty(shape, dtype=torch.float32, device=device) for shape in (n, ()))
    key = logits.dtype, targets.dtype, device, binary
    launch(
        _loss,
        (n, 1, 1),
        key,
        logits,
        targets,
        losses,
        arrivals(device),
        loss,
        n,
        k,
        divisor,
        binary,
        CLASSES,
        **OPTIONS,
    )
    return loss


def backward(g: Tensor, logits: Tensor, targets: Tensor, binary: bool, divisor: float) -> Tensor:
    """Return the gradient of the logits, given the gradient of the loss."""
    (n, k), dx = logits.shape, torch.empty_like(logits)
    key = logits.dtype, targets.dtype, logits.device, binary
    launch(
        _gradient, (n, 1, 1), key, g, logits, targets, dx, k, divisor, binary, CLASSES, **OPTIONS
    )
    return dx


@triton.jit
def _some(x, start, k, BK: tl.constexpr, other):
    """Load the next BK classes of a row in float32, padded with `other`."""
    at = start + tl.arange(0, BK)
    return tl.load(x + at, mask=at < k, other=other).to(tl.float32)


@triton.jit
def _top_and_norm(logits, k, BK: tl.constexpr):
    """Return the largest logit of a row and the sum of exp(logit - largest)."""
    top = tl.full([BK], float("-inf"), tl.float32)
    for start in range(0, k, BK):
        top = tl.maximum(top, _some(logits, start, k, BK, float("-inf")))
    highest = tl.max(top, 0)
    norm = tl.zeros([BK], tl.float32)
    for start in range(0, k, BK):
        norm += tl.exp(_some(logits, start, k, BK, float("-inf")) - highest)
    return highest, tl.sum(norm, 0)


@triton.jit(do_not_specialize=["n", "k"], do_not_specialize_on_alignment=["logits", "targets"])
def _loss(
    logits, targets, losses, arrivals, loss, n, k, divisor, BINARY: tl.constexpr, BK: tl.constexpr
):
    """Sum the loss of one row; the last program to finish sums the rows."""
    row = tl.program_id(0)
    logits += row.to(tl.int64) * k
    targets += row.to(tl.int64) * k
    total = tl.zeros([BK], tl.float32)
    if BINARY:
        for start in range(0, k, BK):
            x, t = _some(logits, start, k, BK, 0.0), _some(targets, start, k, BK, 0.0)
            small = tl.exp(-tl.abs(x))
            more = 1.0 + small  # log1p(small): corrects for the rounding of 1 + small
            log = tl.where(more > 1.0, tl.log(more) * (small / (more - 1.0)), small)
            total += tl.where(start + tl.arange(0, BK) < k, tl.maximum(x, 0.0) - x * t + log, 0.0)
    else:
        highest, norm = _top_and_norm(logits, k, BK)
        for start in range(0, k, BK):
            x, t = _some(logits, start, k, BK, 0.0), _some(targets, start, k, BK, 0.0)
            total += t * (tl.log(norm) + highest - x)
    tl.store(losses + row, tl.sum(total, 0))
    if last(arrivals, n):
        total = tl.zeros([BK], tl.float32)
        for start in range(0, n, BK):
            at = start + tl.arange(0, BK)
            total += tl.load(losses + at, mask=at < n, other=0.0, cache_modifier=".cg")
        tl.store(loss, tl.sum(total, 0) / divisor)


@triton.jit(do_not_specialize=["k"], do_not_specialize_on_alignment=["g", "logits", "targets"])
def _gradient(g, logits, targets, dx, k, divisor, BINARY: tl.constexpr, BK: tl.constexpr):
    """Store (probability - target) * g / divisor for one row."""
    row = tl.program_id(0)
    logits += row.to(tl.int64) * k
    targets += row.to(tl.int64) * k
    dx += row.to(tl.int64) * k
    scale = tl.load(g).to(tl.float32) / divisor
    highest, norm = 0.0, 1.0
    mass = tl.zeros([BK], tl.float32)
    if not BINARY:
        highest, norm = _top_and_norm(logits, k, BK)
        for start in range(0, k, BK):
            mass += _some(targets, start, k, BK, 0.0)
    share = tl.sum(mass, 0) / norm
    for start in range(0, k, BK):
        x, t = _some(logits, start, k, BK, 0.0), _some(targets, start, k, BK, 0.0)
        likely = tl.sigmoid(x) if BINARY else tl.exp(x - highest) * share
        at = start + tl.arange(0, BK)
        tl.store(dx + at, ((likely - t) * scale).to(dx.dtype.element_ty), mask=at < k)
