"""3x3 max pooling with stride 1."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from resnet_recipes.ops.library import nhwc, register


def plain(x: Tensor, size: int = 3, padding: int = 1, dilation: int = 1, ceil_mode: bool = False) -> Tensor:
    """Max-pool [N, C, H, W] with stride 1 in plain torch, which saves 8 bytes for each output."""
    return F.max_pool2d(x, size, 1, padding, dilation, ceil_mode)


def fused(x: Tensor, size: int = 3, padding: int = 1, dilation: int = 1, ceil_mode: bool = False) -> Tensor:
    """Max-pool channels_last, saving one byte for each output; windows other than 3x3 fall back to torch."""
    is_ours = (size, padding, dilation) == (3, 1, 1)
    return _MaxPool.apply(x) if is_ours else plain(x, size, padding, dilation, ceil_mode)


def samples(generator: torch.Generator, dtype: torch.dtype) -> Iterator[tuple[list[Tensor], list[object]]]:
    """Yield small arguments that reach both kernels: partial tiles, and ties between neighbours."""
    x = torch.randn(1, 64, 5, 9, generator=generator, device=generator.device)
    yield [nhwc(x.relu().to(dtype))], []


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        y, winner = torch.ops.resnet_recipes.max_pool.default(x)
        ctx.save_for_backward(winner)
        return y

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, g: Tensor) -> Tensor:
        return torch.ops.resnet_recipes.max_pool_backward.default(g, *ctx.saved_tensors)


def _forward(x: Tensor) -> tuple[Tensor, Tensor]:
    y, indices = F.max_pool2d(nhwc(x), 3, 1, 1, return_indices=True)
    rows, columns = (torch.arange(side, device=x.device) for side in x.shape[2:])
    down, right = indices // x.shape[3] - rows.view(-1, 1) + 1, indices % x.shape[3] - columns + 1
    return y, (3 * down + right).to(torch.uint8)


def _backward(g: Tensor, winner: Tensor) -> Tensor:
    dx, (height, width) = torch.zeros_like(F.pad(g, (1, 1, 1, 1))), g.shape[2:]
    for place in range(9):
        down, right = divmod(place, 3)
        dx[..., down:down + height, right:right + width] += torch.where(winner == place, g, 0)
    return nhwc(dx[..., 1:-1, 1:-1])


def _forward_cuda(x: Tensor) -> tuple[Tensor, Tensor]:
    from resnet_recipes.ops.kernels import max_pool as kernels
    return kernels.forward(nhwc(x))


def _backward_cuda(g: Tensor, winner: Tensor) -> Tensor:
    from resnet_recipes.ops.kernels import max_pool as kernels
    return kernels.backward(nhwc(g), nhwc(winner))


def _forward_fake(x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.empty_like(x, memory_format=torch.channels_last)
    return y, torch.empty_like(y, dtype=torch.uint8)


register("max_pool(Tensor x) -> (Tensor, Tensor)", cpu=_forward, cuda=_forward_cuda, fake=_forward_fake)
register("max_pool_backward(Tensor g, Tensor winner) -> Tensor", cpu=_backward, cuda=_backward_cuda,
         fake=lambda g, _: torch.empty_like(g, memory_format=torch.channels_last))
