"""Cross-entropy with soft targets: one softmax per row, or one sigmoid per class."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from resnet_recipes.ops.library import register


def plain(logits: Tensor, targets: Tensor, binary: bool, divisor: float) -> Tensor:
    """Return the cross-entropy summed over [N, K] logits and targets, divided by `divisor`; always float32.

    With `binary`, each class has its own sigmoid and binary cross-entropy; otherwise each row has
    one softmax.
    """
    if binary:
        return (
            F.binary_cross_entropy_with_logits(logits.float(), targets, reduction="sum") / divisor
        )
    return F.cross_entropy(logits.float(), targets, reduction="sum") / divisor


def fused(logits: Tensor, targets: Tensor, binary: bool, divisor: float) -> Tensor:
    """Do the same in one launch per pass, with sums in a fixed order; targets get no gradient."""
    return _CrossEntropy.apply(logits, targets, binary, divisor)


def samples(
    generator: torch.Generator, dtype: torch.dtype
) -> Iterator[tuple[list[Tensor], list[object]]]:
    """Yield small arguments that reach both kernels: softmax and sigmoid, one block of classes and several."""
    for binary, classes in ((True, 10), (True, 2500), (False, 10), (False, 2500)):
        logits, targets = torch.randn(2, 5, classes, generator=generator, device=generator.device)
        yield [(4 * logits - 2).to(dtype)], [targets.softmax(1), binary, 5.0]


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        logits: Tensor,
        targets: Tensor,
        binary: bool,
        divisor: float,
    ) -> Tensor:
        ctx.save_for_backward(logits, targets)
        ctx.rest = binary, divisor
        return torch.ops.resnet_recipes.cross_entropy.default(logits, targets, binary, divisor)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: torch.autograd.function.FunctionCtx, g: Tensor
    ) -> tuple[Tensor, None, None, None]:
        dx = torch.ops.resnet_recipes.cross_entropy_backward.default(
            g, *ctx.saved_tensors, *ctx.rest
        )
        return dx, None, None, None


def _backward(g: Tensor, logits: Tensor, targets: Tensor, binary: bool, divisor: float) -> Tensor:
    x = logits.float()
    likely = x.sigmoid() if binary else x.softmax(1) * targets.sum(1, keepdim=True)
    return ((likely - targets) * (g / divisor)).to(logits.dtype)


def _forward_cuda(logits: Tensor, targets: Tensor, binary: bool, divisor: float) -> Tensor:
    from resnet_recipes.ops.kernels import cross_entropy as kernels

    return kernels.forward(logits.contiguous(), targets.contiguous(), binary, divisor)


def _backward_cuda(
    g: Tensor, logits: Tensor, targets: Tensor, binary: bool, divisor: float
) -> Tensor:
    from resnet_recipes.ops.kernels import cross_entropy as kernels

    return kernels.backward(g, logits.contiguous(), targets.contiguous(), binary, divisor)


def _forward_fake(logits: Tensor, *_) -> Tensor:
    return logits.new_empty((), dtype=torch.float32)


def _backward_fake(g: Tensor, logits: Tensor, *_) -> Tensor:
    return logits.new_empty(logits.shape)


register(
    "cross_entropy(Tensor logits, Tensor targets, bool binary, float divisor) -> Tensor",
    cpu=plain,
    cuda=_forward_cuda,
    fake=_forward_fake,
)
register(
    "cross_entropy_backward(Tensor g, Tensor logits, Tensor targets, bool binary, float "
    "divisor) -> Tensor",
    cpu=_backward,
    cuda=_backward_cuda,
    fake=_backward_fake,
)
