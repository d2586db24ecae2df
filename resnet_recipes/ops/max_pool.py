"""The 3x3 max pool with padding 1 of a ResNet's stem."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from resnet_recipes.ops.library import make_gradient, make_output, register, sample_windows, to_nhwc


def unfused(x: Tensor, stride: int) -> Tensor:
    """Return the maxima of [N, C, H, W], in plain torch."""
    return F.max_pool2d(x, 3, stride, 1)


def fused(x: Tensor, stride: int) -> Tensor:
    """Return the maxima of channels_last [N, C, H, W] with stride 1 or 2, in one launch per pass.

    It saves one byte per maximum; torch saves eight. An H200 moves 4.2 TB/s, but only 0.6 TB/s in
    the torch max pool, which took a fifth of a training step of Mild.
    """
    return _MaxPool.apply(x, stride)


make_samples = sample_windows


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, stride: int) -> Tensor:
        y, places = torch.ops.resnet_recipes.max_pool.default(x, stride)
        ctx.save_for_backward(places)
        ctx.sizes = stride, *x.shape[2:]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        return torch.ops.resnet_recipes.max_pool_backward.default(g, places, *ctx.sizes), None


def _forward_cuda(x: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    from resnet_recipes.ops.kernels import max_pool as kernels

    return kernels.forward(to_nhwc(x), stride)


def _backward_cuda(g: Tensor, places: Tensor, *sizes: int) -> Tensor:
    from resnet_recipes.ops.kernels import max_pool as kernels

    return kernels.backward(to_nhwc(g), to_nhwc(places), *sizes)


def _forward_fake(x: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    y = make_output(x, stride)
    return y, torch.empty_like(y, dtype=torch.uint8)


register(
    "max_pool(Tensor x, int stride) -> (Tensor, Tensor)",
    cuda=_forward_cuda,
    fake=_forward_fake,
)
register(
    "max_pool_backward(Tensor g, Tensor places, int stride, SymInt height, SymInt width) -> Tensor",
    cuda=_backward_cuda,
    fake=make_gradient,
)
