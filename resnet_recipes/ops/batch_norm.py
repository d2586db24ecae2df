"""Training-mode BatchNorm, fused with the residual sum, ReLU and blur that follow it."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from resnet_recipes.ops import blur as filters
from resnet_recipes.ops.library import nhwc, register

FunctionCtx = torch.autograd.function.FunctionCtx


def plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    keep: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    tracked: Tensor,
    momentum: float,
    eps: float,
    relu: bool,
    blur: int = 0,
    twice: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Normalise [N, C, H, W] by its own statistics, add `residual`, apply ReLU and blur, in plain torch.

    Each image is multiplied by its factor in `keep`, float32 [N], before `residual` is added. The
    output is blurred if `blur` is 1, and returned `twice` if it has two consumers, once for each.
    If `blur` is 2, there are always two outputs, of which the second is blurred with stride 2.
    Updates `running_mean`, `running_var` and the batch count `tracked`.
    """
    tracked.add_(1)
    y = F.batch_norm(x, running_mean, running_var, weight, bias, True, momentum, eps)
    y = y if keep is None else y * keep.to(y.dtype).view(-1, 1, 1, 1)
    y = y if residual is None else y + residual
    y = y.relu() if relu else y
    if blur == 2:
        return y, filters.plain(y, 2)
    y = filters.plain(y) if blur else y
    return (y, y) if twice else y


def fused(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    keep: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    tracked: Tensor,
    momentum: float,
    eps: float,
    relu: bool,
    blur: int = 0,
    twice: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Do the same for channels_last in two launches per pass.

    Float32 sums in a fixed order, rounded once.

    With `blur` 1 the backward pass has a third launch. If each of the two consumers takes its own
    copy of the output, none is needed to add their gradients. Raises ValueError for a residual with
    `blur` 1: the ReLU's gradient needs the signs of the sum, which is not stored.
    """
    if residual is not None and blur == 1:
        raise ValueError("a sum can be blurred with stride 2 only")
    return _BatchNorm.apply(
        x,
        weight,
        bias,
        residual,
        keep,
        running_mean,
        running_var,
        tracked,
        momentum,
        eps,
        relu,
        blur,
        twice,
    )


def samples(
    generator: torch.Generator, dtype: torch.dtype
) -> Iterator[tuple[list[Tensor], list[object]]]:
    """Yield small arguments that reach every kernel.

    With and without each of its parts, and partial tiles.
    """

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=generator.device)

    for channels, relu, add, drop, blur, twice in (
        (64, False, False, False, 0, False),
        (64, True, False, False, 0, True),
        (64, True, True, True, 0, True),
        (128, True, True, False, 0, False),
        (128, True, False, False, 1, False),
        (128, True, True, True, 2, True),
    ):
        x = nhwc((draw(2, channels, 3, 9) * 2 + 1).to(dtype))
        tensors = [
            x,
            draw(channels),
            draw(channels),
            *([nhwc(draw(2, channels, 3, 9).to(dtype))] if add else []),
        ]
        keep = torch.tensor([1.0, 0.0], device=generator.device) if drop else None
        running = [
            draw(channels),
            draw(channels).abs(),
            torch.zeros((), dtype=torch.int64, device=generator.device),
        ]
        yield tensors, [*([] if add else [None]), keep, *running, 0.1, 1e-5, relu, blur, twice]


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        keep: Tensor | None,
        *rest,
    ) -> Tensor | tuple[Tensor, Tensor]:
        *rest, twice = rest
        z, halved, saved = torch.ops.resnet_recipes.batch_norm.default(
            x, weight, bias, residual, keep, *rest
        )
        # The ReLU's gradient needs signs. After a sum they are the output's, which the next
        # convolution saves anyway.
        ctx.save_for_backward(x, None if residual is None else z, keep, weight, bias, saved)
        ctx.set_materialize_grads(False)  # an unused output has no gradient to add
        *_, ctx.relu, ctx.blur = rest
        if ctx.blur == 2:
            return z, halved
        return (z, z.view_as(z)) if twice else z

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, g: Tensor | None, other: Tensor | None = None
    ) -> tuple[Tensor | None, ...]:
        if g is None and other is None:
            return (None,) * 13
        saved = ctx.saved_tensors
        if g is None:
            g, other = (torch.zeros_like(saved[0]), other) if ctx.blur == 2 else (other, None)
        dx, dresidual, sums = torch.ops.resnet_recipes.batch_norm_backward.default(
            g, other, *saved, ctx.relu, ctx.blur
        )
        return dx, sums[0], sums[1], None if saved[1] is None else dresidual, *[None] * 9


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    keep: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    tracked: Tensor,
    momentum: float,
    eps: float,
    relu: bool,
    blur: int,
) -> tuple[Tensor, Tensor, Tensor]:
    tracked.add_(1)
    z, *saved = torch.native_batch_norm(
        nhwc(x), weight, bias, running_mean, running_var, True, momentum, eps
    )
    z = z if keep is None else z * keep.to(z.dtype).view(-1, 1, 1, 1)
    z = z if residual is None else z + residual
    z = z.relu() if relu else z
    halved = filters.by_convolution(z, 2) if blur == 2 else z.new_empty(0)
    return filters.by_convolution(z, 1) if blur == 1 else z, halved, torch.stack(saved)


def _backward(
    g: Tensor,
    other: Tensor | None,
    x: Tensor,
    z: Tensor | None,
    keep: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    saved: Tensor,
    relu: bool,
    blur: int,
) -> tuple[Tensor, Tensor, Tensor]:
    mean, rstd = saved
    other = filters.gradient(other, 2, *x.shape[2:]) if other is not None and blur == 2 else other
    g = g if other is None else g + other
    g = filters.gradient(g, 1, *x.shape[2:]) if blur == 1 else g
    if relu:
        scale = (weight * rstd).view(-1, 1, 1)
        output = (x - mean.view(-1, 1, 1)) * scale + bias.view(-1, 1, 1) if z is None else z
        g = torch.where(output <= 0, 0, g)
    kept = g if keep is None else g * keep.to(g.dtype).view(-1, 1, 1, 1)
    dx, *sums = torch.ops.aten.native_batch_norm_backward(
        kept, x, weight, None, None, mean, rstd, True, 0.0, [True, True, True]
    )
    return nhwc(dx), g.new_empty(0) if z is None else g.clone(), torch.stack(sums)


def _forward_cuda(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    keep: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    tracked: Tensor,
    momentum: float,
    eps: float,
    relu: bool,
    blur: int,
) -> tuple[Tensor, Tensor, Tensor]:
    from resnet_recipes.ops.kernels import batch_norm as kernels

    residual = None if residual is None else nhwc(residual)
    running = (running_mean, running_var, tracked)
    z, halved, saved = kernels.forward(
        nhwc(x), weight, bias, residual, keep, running, momentum, eps, relu, blur
    )
    return z, x.new_empty(0) if halved is None else halved, saved


def _backward_cuda(
    g: Tensor,
    other: Tensor | None,
    x: Tensor,
    z: Tensor | None,
    keep: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    saved: Tensor,
    relu: bool,
    blur: int,
) -> tuple[Tensor, Tensor, Tensor]:
    from resnet_recipes.ops.kernels import batch_norm as kernels

    # Both kernels read the sum, and without a residual neither stores it.
    if z is None and other is not None and blur < 2:
        g, other = g + other, None
    other = None if other is None else nhwc(other)
    dx, dresidual, sums = kernels.backward(
        nhwc(g), other, nhwc(x), z, keep, weight, bias, saved, relu, blur
    )
    return dx, g.new_empty(0) if dresidual is None else dresidual, sums


def _forward_fake(x: Tensor, weight: Tensor, *rest) -> tuple[Tensor, Tensor, Tensor]:
    n, c, h, w = x.shape
    halved = (
        nhwc(x.new_empty(n, c, (h - 1) // 2 + 1, (w - 1) // 2 + 1))
        if rest[-1] == 2
        else x.new_empty(0)
    )
    return torch.empty_like(x, memory_format=torch.channels_last), halved, weight.new_empty(2, c)


def _backward_fake(
    g: Tensor,
    other: Tensor | None,
    x: Tensor,
    z: Tensor | None,
    keep: Tensor | None,
    weight: Tensor,
    *_,
) -> tuple[Tensor, Tensor, Tensor]:
    dx = torch.empty_like(x, memory_format=torch.channels_last)
    return (
        dx,
        g.new_empty(0) if z is None else torch.empty_like(dx),
        weight.new_empty(2, x.shape[1]),
    )


register(
    "batch_norm(Tensor x, Tensor weight, Tensor bias, Tensor? residual, Tensor? keep, Tensor(a!) "
    "running_mean,"
    " Tensor(b!) running_var, Tensor(c!) tracked, float momentum, float eps, bool relu, int blur)"
    " -> (Tensor, Tensor, Tensor)",
    cpu=_forward,
    cuda=_forward_cuda,
    fake=_forward_fake,
)
register(
    "batch_norm_backward(Tensor g, Tensor? other, Tensor x, Tensor? z, Tensor? keep, Tensor "
    "weight, Tensor bias,"
    " Tensor saved, bool relu, int blur) -> (Tensor, Tensor, Tensor)",
    cpu=_backward,
    cuda=_backward_cuda,
    fake=_backward_fake,
)
