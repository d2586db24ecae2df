"""Training-mode BatchNorm, fused with the residual sum and ReLU that follow it."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from resnet_recipes.ops.library import SampleCall, SampleCalls, register, sample_normal, to_nhwc
from resnet_recipes.ops.norm import Epilogue, Norm, SavedTensors

FunctionCtx = torch.autograd.function.FunctionCtx

#: Argument names of the fused function.
_INPUTS = ("x", *Norm._fields, *Epilogue._fields)


def unfused(x: Tensor, norm: Norm, epilogue: Epilogue) -> Tensor | tuple[Tensor, ...]:
    """Normalize [N, C, H, W] by its own statistics and apply the epilogue, in plain torch."""
    weight, bias, mean, var, tracked, momentum, eps = norm
    tracked.add_(1)
    return apply_epilogue(F.batch_norm(x, mean, var, weight, bias, True, momentum, eps), epilogue)


def apply_epilogue(y: Tensor, epilogue: Epilogue) -> Tensor | tuple[Tensor, ...]:
    """Apply the epilogue to the output of a BatchNorm, which may be overwritten."""
    y = y if epilogue.keep is None else y * epilogue.keep.to(y.dtype).view(-1, 1, 1, 1)
    y = y if epilogue.residual is None else y + epilogue.residual
    y = F.relu(y, inplace=True) if epilogue.relu else y
    return (y, y) if epilogue.returns_pair else y


def fused(x: Tensor, norm: Norm, epilogue: Epilogue) -> Tensor | tuple[Tensor, ...]:
    """Compute the same function for channels_last input in two launches per pass.

    Sums are computed in float32, in a fixed order, and rounded once. Two consumers may each use a
    view of the output. Their gradients are added in the second launch if there is a residual, and
    otherwise by a separate torch launch.
    """
    return _BatchNorm.apply(x, *norm, *epilogue)


def make_samples(generator: torch.Generator, dtype: torch.dtype) -> SampleCalls:
    """Yield arguments that reach every kernel: with and without each part, and partial tiles.

    The first sample has enough rows that several programs split the sums, as in a real network.
    """
    for shape, relu, add, drop, pair in (
        ((2, 64, 13, 19), True, True, False, True),
        ((2, 64, 3, 9), False, False, False, False),
        ((2, 64, 3, 9), True, False, False, True),
        ((2, 64, 3, 9), True, True, True, True),
        ((2, 128, 3, 9), True, True, False, False),
    ):
        x = to_nhwc((sample_normal(generator, shape) * 2 + 1).to(dtype)).requires_grad_()
        residual = (
            to_nhwc(sample_normal(generator, shape).to(dtype)).requires_grad_() if add else None
        )
        keep = torch.tensor([1.0, 0.0], device=generator.device) if drop else None
        epilogue = Epilogue(residual, keep, relu, pair)
        # two gradients without a sum are added in `dtype`
        yield SampleCall((x, _sample_norm(generator, shape[1]), epilogue), pair and not add)


def _sample_norm(generator: torch.Generator, channels: int) -> Norm:
    weight, bias, mean, var = (sample_normal(generator, (channels,)) for _ in range(4))
    tracked = torch.zeros((), dtype=torch.int64, device=generator.device)
    return Norm(weight.requires_grad_(), bias.requires_grad_(), mean, var.abs(), tracked, 0.1, 1e-5)


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, *rest) -> Tensor | tuple[Tensor, ...]:
        norm, epilogue = _split_arguments(rest)
        z, moments = torch.ops.resnet_recipes.batch_norm.default(x, *rest[:-1])
        # The ReLU gradient needs signs. With a residual, they come from the output, which the next
        # convolution saves anyway.
        output = None if epilogue.residual is None else z
        ctx.save_for_backward(x, output, epilogue.keep, norm.weight, norm.bias, moments)
        ctx.set_materialize_grads(False)  # an unused output has no gradient to add
        ctx.relu = epilogue.relu
        return (z, z.view_as(z)) if epilogue.returns_pair else z

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, g: Tensor | None, other: Tensor | None = None
    ) -> tuple[Tensor | None, ...]:
        if g is None and other is None:
            return _order_gradients()
        saved = SavedTensors(*ctx.saved_tensors, ctx.relu)
        if g is None:
            g, other = other, None
        dx, dresidual, sums = torch.ops.resnet_recipes.batch_norm_backward.default(g, other, *saved)
        weight, bias = sums
        residual = None if saved.z is None else dresidual
        return _order_gradients(x=dx, weight=weight, bias=bias, residual=residual)


def _split_arguments(rest: tuple) -> tuple[Norm, Epilogue]:
    split = len(Norm._fields)
    return Norm(*rest[:split]), Epilogue(*rest[split:])


def _order_gradients(**gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return a gradient for each input, None for inputs that are not given."""
    return tuple(gradients.get(name) for name in _INPUTS)


def _forward_cuda(x: Tensor, *rest) -> tuple[Tensor, Tensor]:
    from resnet_recipes.ops.kernels import batch_norm as kernels

    norm, epilogue = _split_arguments(rest)
    if epilogue.residual is not None:
        epilogue = epilogue._replace(residual=to_nhwc(epilogue.residual))
    return kernels.forward(to_nhwc(x), norm, epilogue)


def _backward_cuda(g: Tensor, other: Tensor | None, *rest) -> tuple[Tensor, Tensor, Tensor]:
    from resnet_recipes.ops.kernels import batch_norm as kernels

    saved = SavedTensors(*rest)
    # Both kernels read the sum of gradients; without a residual neither stores it.
    if saved.z is None and other is not None:
        g = g + other
        other = None
    other = None if other is None else to_nhwc(other)
    dx, dresidual, sums = kernels.backward(to_nhwc(g), other, saved._replace(x=to_nhwc(saved.x)))
    return dx, g.new_empty(0) if dresidual is None else dresidual, sums


def _forward_fake(x: Tensor, weight: Tensor, *_) -> tuple[Tensor, Tensor]:
    z = torch.empty_like(x, memory_format=torch.channels_last)
    return z, weight.new_empty(2, x.shape[1])


def _backward_fake(g: Tensor, _: Tensor | None, *rest) -> tuple[Tensor, Tensor, Tensor]:
    saved = SavedTensors(*rest)
    dx = torch.empty_like(saved.x, memory_format=torch.channels_last)
    dresidual = g.new_empty(0) if saved.z is None else torch.empty_like(dx)
    return dx, dresidual, torch.empty_like(saved.moments)


register(
    "batch_norm(Tensor x, Tensor weight, Tensor bias, Tensor(a!) running_mean, Tensor(b!) "
    "running_var, Tensor(c!) tracked, float momentum, float eps, Tensor? residual, Tensor? keep, "
    "bool relu) -> (Tensor, Tensor)",
    cuda=_forward_cuda,
    fake=_forward_fake,
)
register(
    "batch_norm_backward(Tensor g, Tensor? other, Tensor x, Tensor? z, Tensor? keep, Tensor "
    "weight, Tensor bias, Tensor moments, bool relu) -> (Tensor, Tensor, Tensor)",
    cuda=_backward_cuda,
    fake=_backward_fake,
)
