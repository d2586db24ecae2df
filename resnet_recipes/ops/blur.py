"""Depthwise 3x3 binomial blur: [1, 2, 1] x [1, 2, 1] / 16, zero-padded by 1."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from resnet_recipes.ops.library import make_gradient, make_output, register, sample_windows, to_nhwc

Stride = int | tuple[int, int]


def unfused(x: Tensor, stride: Stride = 1) -> Tensor:
    """Blur [N, C, H, W] with a depthwise torch convolution.

    Two 2x2 averages are the same filter, but took 17 times as long on an H200. Their gradient is
    wrong in channels_last on GPUs up to torch 2.12 (pytorch/pytorch#188344). A strided blur in bf16
    on a CPU sums in float32 and rounds once. The torch 2.15 gradient rounds after each term on a
    CPU without AVX-512 BF16 and takes 12 to 100 times as long on a CPU with it.
    """
    if x.device.type != "cpu" or x.dtype != torch.bfloat16 or stride in (1, (1, 1)):
        return F.conv2d(x, _make_kernel(x), stride=stride, padding=1, groups=x.shape[1])
    with torch.autocast("cpu", enabled=False):
        return unfused(x.float(), stride).to(x.dtype)


def fused(x: Tensor, stride: Stride = 1) -> Tensor:
    """Blur channels_last [N, C, H, W] in one launch per pass.

    Sums are computed in float32, in a fixed order, and rounded once.
    """
    if stride in (1, (1, 1)):
        return _Blur.apply(x, 1)
    if stride in (2, (2, 2)):
        return _Blur.apply(x, 2)
    return unfused(x, stride)


make_samples = sample_windows


class Blurring:
    """A mixin for modules that blur with their attribute `blur`."""

    blur: Callable[[Tensor, Stride], Tensor] = staticmethod(unfused)


class _Blur(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, stride: int) -> Tensor:
        ctx.sizes = stride, *x.shape[2:]
        return torch.ops.resnet_recipes.blur.default(x, stride)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return torch.ops.resnet_recipes.blur_backward.default(g, *ctx.sizes), None


def _forward_cuda(x: Tensor, stride: int) -> Tensor:
    from resnet_recipes.ops.kernels import blur as kernels

    return kernels.forward(to_nhwc(x), stride)


def _backward_cuda(g: Tensor, stride: int, height: int, width: int) -> Tensor:
    from resnet_recipes.ops.kernels import blur as kernels

    return (
        kernels.forward(to_nhwc(g), 1)
        if stride == 1
        else kernels.backward(to_nhwc(g), height, width)
    )


def _make_kernel(x: Tensor) -> Tensor:
    kernel = x.new_full((3, 3), 1 / 16)  # created on the device: a copy from the host would block
    kernel[1] *= 2
    kernel[:, 1] *= 2
    return kernel.expand(x.shape[1], 1, 3, 3)


register("blur(Tensor x, int stride) -> Tensor", cuda=_forward_cuda, fake=make_output)
register(
    "blur_backward(Tensor g, int stride, SymInt height, SymInt width) -> Tensor",
    cuda=_backward_cuda,
    fake=make_gradient,
)
