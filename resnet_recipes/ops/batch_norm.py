"""BatchNorm in training, with the sum and the ReLU that follow it in a residual network."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from resnet_recipes.ops.library import nhwc, register

FunctionCtx = torch.autograd.function.FunctionCtx


def plain(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, running_mean: Tensor, running_var: Tensor,
    tracked: Tensor, momentum: float, eps: float, relu: bool,
) -> Tensor:
    """Normalise [N, C, H, W] by its own statistics, add `residual`, apply ReLU, with torch's own operations.

    `running_mean`, `running_var` and the number of batches `tracked` are brought up to date.
    """
    tracked.add_(1)
    y = F.batch_norm(x, running_mean, running_var, weight, bias, True, momentum, eps)
    y = y if residual is None else y + residual
    return y.relu() if relu else y


def fused(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, running_mean: Tensor, running_var: Tensor,
    tracked: Tensor, momentum: float, eps: float, relu: bool,
) -> Tensor:
    """Do the same for channels_last in two launches each way: float32 sums in a fixed order, rounded once."""
    return _BatchNorm.apply(x, weight, bias, residual, running_mean, running_var, tracked, momentum, eps, relu)


def samples(generator: torch.Generator, dtype: torch.dtype) -> Iterator[tuple[list[Tensor], list[object]]]:
    """Yield small arguments that reach every kernel: with and without residual and ReLU, parts of tiles."""
    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=generator.device)

    for channels, relu, add in ((64, False, False), (64, True, False), (256, True, True)):
        x = nhwc((draw(3, channels, 7, 5) * 2 + 1).to(dtype))
        tensors = [x, draw(channels), draw(channels), *([nhwc(draw(3, channels, 7, 5).to(dtype))] if add else [])]
        running = [draw(channels), draw(channels).abs(), torch.zeros((), dtype=torch.int64, device=generator.device)]
        yield tensors, [*([] if add else [None]), *running, 0.1, 1e-5, relu]


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, *rest) -> Tensor:
        z, saved = torch.ops.resnet_recipes.batch_norm.default(x, weight, bias, residual, *rest)
        # A ReLU's gradient needs signs: after a sum those of the output, which the next convolution keeps anyway.
        ctx.save_for_backward(x, None if residual is None else z, weight, bias, saved)
        ctx.relu = rest[-1]
        return z

    @staticmethod
    def backward(ctx: FunctionCtx, g: Tensor) -> tuple[Tensor | None, ...]:
        dx, dresidual, sums = torch.ops.resnet_recipes.batch_norm_backward.default(g, *ctx.saved_tensors, ctx.relu)
        return dx, sums[0], sums[1], dresidual if ctx.saved_tensors[1] is not None else None, *[None] * 6


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, running_mean: Tensor, running_var: Tensor,
    tracked: Tensor, momentum: float, eps: float, relu: bool,
) -> tuple[Tensor, Tensor]:
    tracked.add_(1)
    z, *saved = torch.native_batch_norm(nhwc(x), weight, bias, running_mean, running_var, True, momentum, eps)
    z = z if residual is None else z + residual
    return z.relu() if relu else z, torch.stack(saved)


def _backward(
    g: Tensor, x: Tensor, z: Tensor | None, weight: Tensor, bias: Tensor, saved: Tensor, relu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    mean, rstd = saved
    if relu:
        scale = (weight * rstd).view(-1, 1, 1)
        positive = (x - mean.view(-1, 1, 1)) * scale + bias.view(-1, 1, 1) > 0 if z is None else z > 0
        g = torch.where(positive, g, 0)
    dx, *sums = torch.ops.aten.native_batch_norm_backward(
        g, x, weight, None, None, mean, rstd, True, 0.0, [True, True, True])
    return nhwc(dx), g.new_empty(0) if z is None else g.clone(), torch.stack(sums)


def _forward_cuda(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, running_mean: Tensor, running_var: Tensor,
    tracked: Tensor, momentum: float, eps: float, relu: bool,
) -> tuple[Tensor, Tensor]:
    from resnet_recipes.ops.kernels import batch_norm as kernels
    residual = None if residual is None else nhwc(residual)
    running = (running_mean, running_var, tracked)
    return kernels.forward(nhwc(x), weight, bias, residual, running, momentum, eps, relu)


def _backward_cuda(
    g: Tensor, x: Tensor, z: Tensor | None, weight: Tensor, bias: Tensor, saved: Tensor, relu: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    from resnet_recipes.ops.kernels import batch_norm as kernels
    dx, dresidual, sums = kernels.backward(nhwc(g), nhwc(x), z, weight, bias, saved, relu)
    return dx, g.new_empty(0) if dresidual is None else dresidual, sums


def _forward_fake(x: Tensor, weight: Tensor, *_) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x, memory_format=torch.channels_last), weight.new_empty(2, x.shape[1])


def _backward_fake(g: Tensor, x: Tensor, z: Tensor | None, weight: Tensor, *_) -> tuple[Tensor, Tensor, Tensor]:
    dx = torch.empty_like(x, memory_format=torch.channels_last)
    return dx, g.new_empty(0) if z is None else torch.empty_like(dx), weight.new_empty(2, x.shape[1])


register(
    "batch_norm(Tensor x, Tensor weight, Tensor bias, Tensor? residual, Tensor(a!) running_mean,"
    " Tensor(b!) running_var, Tensor(c!) tracked, float momentum, float eps, bool relu) -> (Tensor, Tensor)",
    cpu=_forward, cuda=_forward_cuda, fake=_forward_fake)
register(
    "batch_norm_backward(Tensor g, Tensor x, Tensor? z, Tensor weight, Tensor bias, Tensor saved, bool relu)"
    " -> (Tensor, Tensor, Tensor)",
    cpu=_backward, cuda=_backward_cuda, fake=_backward_fake)
