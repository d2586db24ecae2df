"""The weights of a network in the type that it computes in, cast together and not one by one."""

import torch
from torch import Tensor, nn


def cast_together(model: nn.Module) -> None:
    """Let the convolutions of each stage of `model` have their weights cast in a few launches, and gradients cast back.

    Autocast takes two launches for each. The numbers are the same; a stage's gradients are ready together, when its
    backward pass ends. Parameters and state-dict keys stay as they are. Not for compiled models, which fuse casts.
    """
    for stage in model.children():
        convolutions = tuple(module for module in stage.modules() if isinstance(module, nn.Conv2d))
        if len(convolutions) > 1:
            stage.cast_convolutions = convolutions
            stage.register_forward_pre_hook(_cover)
            stage.register_forward_hook(_uncover, always_call=True)


def _cover(stage: nn.Module, _: tuple[Tensor]) -> None:
    """Lay a cast copy over each weight: what an instance has of a name comes before its Parameter of that name."""
    device = stage.cast_convolutions[0].weight.device.type
    trained = [module for module in stage.cast_convolutions if module.weight.requires_grad]   # not frozen
    if trained and torch.is_autocast_enabled(device):
        copies = _Cast.apply(torch.get_autocast_dtype(device), *(module.weight for module in trained))
        for module, copy in zip(trained, copies, strict=True):
            module.__dict__["weight"] = copy


def _uncover(stage: nn.Module, *_: object) -> None:
    for module in stage.cast_convolutions:
        module.__dict__.pop("weight", None)


class _Cast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.dtype = weights[0].dtype
        return _cast(weights, dtype)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *_cast(gradients, ctx.dtype)


def _cast(tensors: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    copies = tuple(torch.empty_like(tensor, dtype=dtype) for tensor in tensors)
    torch._foreach_copy_(copies, tensors)
    return copies
