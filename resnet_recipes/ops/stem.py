"""The stem of a blurred ResNet after its convolution.

BatchNorm, ReLU, maximum of 3x3 pixels, blur with stride 2.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from resnet_recipes.ops import batch_norm, blur
from resnet_recipes.ops.library import nhwc, register

FunctionCtx = torch.autograd.function.FunctionCtx
NOWHERE = 9  # the place of a maximum that is not above zero and has no gradient


def plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    tracked: Tensor,
    momentum: float,
    eps: float,
) -> Tensor:
    """Return [N, C, (H + 1) // 2, (W + 1) // 2] for [N, C, H, W], with torch's own operations.

    `running_mean`, `running_var` and the number of batches `tracked` are brought up to date.
    """
    y = batch_norm.plain(
        x, weight, bias, None, None, running_mean, running_var, tracked, momentum, eps, True
    )
    return blur.plain(F.max_pool2d(y, 3, 1, 1), 2)


def fused(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    tracked: Tensor,
    momentum: float,
    eps: float,
) -> Tensor:
    """Do the same for channels_last in two launches per pass, storing a byte for each maximum.

    Sums are in float32 and in a fixed order. Of values that differ by less than a millionth the
    first is the maximum.
    """
    return _Stem.apply(x, weight, bias, running_mean, running_var, tracked, momentum, eps)


def samples(
    generator: torch.Generator, dtype: torch.dtype
) -> Iterator[tuple[list[Tensor], list[object]]]:
    """Yield small arguments that reach every kernel.

    Odd and even sides, several tiles and parts of them.
    """
    for height, width in ((17, 3), (2, 18)):
        x, weight, bias, mean, var = (
            torch.randn(shape, generator=generator, device=generator.device)
            for shape in ((1, 64, height, width), *[(64,)] * 4)
        )
        tracked = torch.zeros((), dtype=torch.int64, device=generator.device)
        yield [nhwc(x.to(dtype)), weight, bias], [mean, var.abs(), tracked, 0.1, 1e-5]


class _Stem(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor, *rest) -> Tensor:
        y, winner, saved = torch.ops.resnet_recipes.stem.default(x, weight, bias, *rest)
        ctx.save_for_backward(winner, x, weight, bias, saved)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, g: Tensor) -> tuple[Tensor | None, ...]:
        dx, sums = torch.ops.resnet_recipes.stem_backward.default(g, *ctx.saved_tensors)
        return dx, sums[0], sums[1], *[None] * 5


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    tracked: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    tracked.add_(1)
    z, *saved = torch.native_batch_norm(
        nhwc(x), weight, bias, running_mean, running_var, True, momentum, eps
    )
    y, indices = F.max_pool2d(z.relu(), 3, 1, 1, return_indices=True)
    rows, columns = (torch.arange(side, device=x.device) for side in x.shape[2:])
    down, right = indices // x.shape[3] - rows.view(-1, 1) + 1, indices % x.shape[3] - columns + 1
    winner = torch.where(y <= 0, NOWHERE, 3 * down + right).to(torch.uint8)
    return blur.by_convolution(y, 2), winner, torch.stack(saved)


def _backward(
    g: Tensor,
    winner: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    saved: Tensor,
) -> tuple[Tensor, Tensor]:
    height, width = x.shape[2:]
    g = blur.gradient(g, 2, height, width)
    dz = torch.zeros_like(F.pad(g, (1, 1, 1, 1)))
    for place in range(NOWHERE):
        down, right = divmod(place, 3)
        dz[..., down : down + height, right : right + width] += torch.where(winner == place, g, 0)
    dx, *sums = torch.ops.aten.native_batch_norm_backward(
        dz[..., 1:-1, 1:-1], x, weight, None, None, *saved, True, 0.0, [True, True, True]
    )
    return nhwc(dx), torch.stack(sums)


def _forward_cuda(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    tracked: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    from resnet_recipes.ops.kernels import stem as kernels

    return kernels.forward(
        nhwc(x), weight, bias, (running_mean, running_var, tracked), momentum, eps
    )


def _backward_cuda(
    g: Tensor,
    winner: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    saved: Tensor,
) -> tuple[Tensor, Tensor]:
    from resnet_recipes.ops.kernels import stem as kernels

    return kernels.backward(nhwc(g), winner, nhwc(x), weight, bias, saved)


def _forward_fake(x: Tensor, weight: Tensor, *_) -> tuple[Tensor, Tensor, Tensor]:
    n, c, h, w = x.shape
    y, winner = (
        x.new_empty(n, c, (h - 1) // 2 + 1, (w - 1) // 2 + 1),
        torch.empty_like(x, dtype=torch.uint8),
    )
    return nhwc(y), nhwc(winner), weight.new_empty(2, c)


def _backward_fake(
    g: Tensor, winner: Tensor, x: Tensor, weight: Tensor, *_
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x, memory_format=torch.channels_last), weight.new_empty(2, x.shape[1])


register(
    "stem(Tensor x, Tensor weight, Tensor bias, Tensor(a!) running_mean, Tensor(b!) running_var, "
    "Tensor(c!) tracked,"
    " float momentum, float eps) -> (Tensor, Tensor, Tensor)",
    cpu=_forward,
    cuda=_forward_cuda,
    fake=_forward_fake,
)
register(
    "stem_backward(Tensor g, Tensor winner, Tensor x, Tensor weight, Tensor bias, Tensor saved) "
    "-> (Tensor, Tensor)",
    cpu=_backward,
    cuda=_backward_cuda,
    fake=_backward_fake,
)
