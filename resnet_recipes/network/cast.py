"""Cast a network's weights to the dtype it computes in, all together instead of one by one."""

import torch
from torch import Tensor, nn

from resnet_recipes.optim.copies import Copies


def cast_together(model: nn.Module, dtype: torch.dtype) -> Copies:
    """Let the convolutions and linear layers of `model` compute with copies of their weights; return the copies.

    Autocast needs one launch for each weight and one for each gradient, in every forward and
    backward pass. Here all weights are cast in one launch, and their gradients in one launch a
    stage, so a stage's gradients become ready together, at the end of its backward pass. Results,
    parameters and state-dict keys do not change. Not for compiled models, which fuse the casts. The
    weights must stay where they are in memory.
    """
    model.cast_stages = [found for stage in model.children() if (found := _cast_in(stage))]
    model.copies = Copies()
    for weight in (getattr(*place) for stage in model.cast_stages for place in stage):
        model.copies[weight] = torch.empty_like(weight, dtype=dtype)
    model.register_forward_pre_hook(_cover)
    model.register_forward_hook(_uncover, always_call=True)
    return model.copies


def _cast_in(stage: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return the module and the name of each parameter that autocast would cast."""
    layers = [module for module in stage.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    return [(layer, name) for layer in layers for name, _ in layer.named_parameters(recurse=False)]


def _cover(model: nn.Module, _: tuple[Tensor]) -> None:
    """Shadow each weight with its copy: an instance attribute takes precedence over a Parameter of the same name."""
    if not torch.is_autocast_enabled(next(iter(model.copies)).device.type):
        return
    model.copies.renew()
    for stage in model.cast_stages:
        weights = [getattr(*place) for place in stage]
        tied = _Tied.apply(*weights, *(model.copies[weight] for weight in weights))
        for (module, name), copy in zip(stage, tied, strict=True):
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
        return tensors[len(tensors) // 2 :]

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor
    ) -> tuple[Tensor | None, ...]:
        # frozen weights get none
        wanted = [i for i in range(len(gradients)) if ctx.needs_input_grad[i]]
        cast = [torch.empty_like(gradients[i], dtype=ctx.dtype) for i in wanted]
        torch._foreach_copy_(cast, [gradients[i] for i in wanted])
        found: list[Tensor | None] = [None] * 2 * len(gradients)
        for i, gradient in zip(wanted, cast, strict=True):
            found[i] = gradient
        return tuple(found)
