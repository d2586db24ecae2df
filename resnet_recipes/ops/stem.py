"""The stem of a blurred ResNet after its convolution.

BatchNorm, ReLU, maximum of 3x3 pixels, blur with stride 2.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from resnet_recipes.ops import batch_norm, blur
from resnet_recipes.ops.batch_norm import sample_norm
from resnet_recipes.ops.library import nhwc, register
from resnet_recipes.ops.norm import Epilogue, Norm, Saved
from resnet_recipes.ops.sample import Sample, Samples, draw

FunctionCtx = torch.autograd.function.FunctionCtx
NOWHERE = 9  # the place of a maximum that is not above zero and has no gradient


def plain(x: Tensor, norm: Norm) -> Tensor:
    """Return [N, C, (H + 1) // 2, (W + 1) // 2] for [N, C, H, W], with torch's own operations."""
    y = batch_norm.plain(x, norm, Epilogue(relu=True))
    return blur.plain(F.max_pool2d(y, 3, 1, 1), 2)


def fused(x: Tensor, norm: Norm) -> Tensor:
    """Do the same for channels_last in two launches per pass, storing a byte for each maximum.

    Sums are in float32 and in a fixed order. Of values that differ by less than a millionth the
    first is the maximum.
    """
    return _Stem.apply(x, *norm)


def samples(generator: torch.Generator, dtype: torch.dtype) -> Samples:
    """Yield arguments that reach every kernel: odd and even sides, several tiles and parts of them.

    The first has so many rows that several programs share the sums, as in a real network.
    """
    for shape in ((2, 64, 13, 19), (1, 64, 17, 3), (1, 64, 2, 18)):
        x = nhwc(draw(generator, shape).to(dtype)).requires_grad_()
        yield Sample((x, sample_norm(generator, shape[1])))


class _Stem(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor, *rest) -> Tensor:
        y, winner, moments = torch.ops.resnet_recipes.stem.default(x, weight, bias, *rest)
        ctx.save_for_backward(winner, x, weight, bias, moments)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, g: Tensor) -> tuple[Tensor | None, ...]:
        dx, sums = torch.ops.resnet_recipes.stem_backward.default(g, *ctx.saved_tensors)
        return dx, *sums, *[None] * 5


def _forward(x: Tensor, *rest) -> tuple[Tensor, Tensor, Tensor]:
    norm = Norm(*rest)
    norm.tracked.add_(1)
    running, numbers = norm[2:4], norm[5:]
    z, *moments = torch.native_batch_norm(nhwc(x), *norm[:2], *running, True, *numbers)
    y, indices = F.max_pool2d(z.relu(), 3, 1, 1, return_indices=True)
    rows, columns = (torch.arange(side, device=x.device) for side in x.shape[2:])
    down, right = indices // x.shape[3] - rows.view(-1, 1) + 1, indices % x.shape[3] - columns + 1
    winner = torch.where(y <= 0, NOWHERE, 3 * down + right).to(torch.uint8)
    return blur.by_convolution(y, 2), winner, torch.stack(moments)


def _backward(
    g: Tensor, winner: Tensor, x: Tensor, weight: Tensor, _: Tensor, moments: Tensor
) -> tuple[Tensor, Tensor]:
    height, width = x.shape[2:]
    g = blur.gradient(g, 2, height, width)
    dz = torch.zeros_like(F.pad(g, (1, 1, 1, 1)))
    for place in range(NOWHERE):
        down, right = divmod(place, 3)
        dz[..., down : down + height, right : right + width] += torch.where(winner == place, g, 0)
    dx, *sums = torch.ops.aten.native_batch_norm_backward(
        dz[..., 1:-1, 1:-1], x, weight, None, None, *moments, True, 0.0, [True, True, True]
    )
    return nhwc(dx), torch.stack(sums)


def _forward_cuda(x: Tensor, *rest) -> tuple[Tensor, Tensor, Tensor]:
    from resnet_recipes.ops.kernels import stem as kernels

    return kernels.forward(nhwc(x), Norm(*rest))


def _backward_cuda(g: Tensor, winner: Tensor, x: Tensor, *rest) -> tuple[Tensor, Tensor]:
    from resnet_recipes.ops.kernels import stem as kernels

    return kernels.backward(nhwc(g), winner, Saved(nhwc(x), None, None, *rest, True))


def _forward_fake(x: Tensor, weight: Tensor, *_) -> tuple[Tensor, Tensor, Tensor]:
    n, c, h, w = x.shape
    y = x.new_empty(n, c, (h - 1) // 2 + 1, (w - 1) // 2 + 1)
    return nhwc(y), nhwc(torch.empty_like(x, dtype=torch.uint8)), weight.new_empty(2, c)


def _backward_fake(_g: Tensor, _winner: Tensor, x: Tensor, *rest) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x, memory_format=torch.channels_last), torch.empty_like(rest[-1])


register(
    "stem(Tensor x, Tensor weight, Tensor bias, Tensor(a!) running_mean, Tensor(b!) running_var, "
    "Tensor(c!) tracked, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
    cpu=_forward,
    cuda=_forward_cuda,
    fake=_forward_fake,
)
register(
    "stem_backward(Tensor g, Tensor winner, Tensor x, Tensor weight, Tensor bias, Tensor moments) "
    "-> (Tensor, Tensor)",
    cpu=_backward,
    cuda=_backward_cuda,
    fake=_backward_fake,
)
