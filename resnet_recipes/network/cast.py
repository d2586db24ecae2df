"""Cast a network's weights to the dtype it computes in, all together instead of one by one."""

import torch
from torch import Tensor, nn


def cast_together(model: nn.Module) -> None:
    """Make the forward pass cast the weights of all convolutions and linear layers in one launch.

    Autocast needs one launch for each weight and one for each gradient. Here gradients are cast back in one launch a
    stage, so a stage's gradients become ready together, at the end of its backward pass. Results, parameters and
    state-dict keys do not change. Not for compiled models, which fuse the casts.
    """
    model.cast_stages = [found for stage in model.children() if (found := _cast_in(stage))]
    model.register_forward_pre_hook(_cover)
    model.register_forward_hook(_uncover, always_call=True)


def _cast_in(stage: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return the module and the name of each parameter that autocast would cast."""
    layers = [module for module in stage.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    return [(layer, name) for layer in layers for name, _ in layer.named_parameters(recurse=False)]


def _cover(model: nn.Module, _: tuple[Tensor]) -> None:
    """Shadow each weight with a cast copy: an instance attribute takes precedence over a Parameter of the same name."""
    places = [place for stage in model.cast_stages for place in stage]
    weights = [getattr(*place) for place in places]
    device = weights[0].device.type
    if not torch.is_autocast_enabled(device):
        return
    copies = iter(_cast(weights, torch.get_autocast_dtype(device)))
    for stage in model.cast_stages:
        trained = [getattr(*place) for place in stage]
        for (module, name), copy in zip(stage, _Tied.apply(*trained, *(next(copies) for _ in stage)), strict=True):
            module.__dict__[name] = copy


def _uncover(model: nn.Module, *_: object) -> None:
    for stage in model.cast_stages:
        for module, name in stage:
            module.__dict__.pop(name, None)


class _Tied(torch.autograd.Function):
    """Return the second half of the tensors, copies of the first half, and pass their gradients to the first half."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.dtype = tensors[0].dtype
        return tensors[len(tensors) // 2:]

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        wanted = [i for i in range(len(gradients)) if ctx.needs_input_grad[i]]      # frozen weights get none
        found: list[Tensor | None] = [None] * 2 * len(gradients)
        for i, gradient in zip(wanted, _cast([gradients[i] for i in wanted], ctx.dtype), strict=True):
            found[i] = gradient
        return tuple(found)


@torch.no_grad()
def _cast(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, tensors)
    return copies
