"""A network's weights in the dtype that it computes in."""

import torch
from torch import Tensor, nn


class Casts:
    """Copies of the weights that convolutions and linear layers compute with, cast together instead of one by one.

    Autocast needs one launch for each weight and one for each gradient, in every forward and backward pass. Here
    weights are cast in one launch, if they have changed, and gradients in one launch a stage, so a stage's gradients
    become ready together, at the end of its backward pass. Results, parameters and state-dict keys do not change.
    """

    def __init__(self, dtype: torch.dtype):
        #: The copy of each weight. Whoever changes a weight behind torch's back must change its copy as well.
        self.copies: dict[nn.Parameter, Tensor] = {}
        self._dtype = dtype
        self._versions: list[int] = []      # of the weights, when they were last cast
        self._stages: list[list[tuple[nn.Module, str]]] = []

    def cover(self, model: nn.Module) -> None:
        """Let the forward pass use copies. Not for compiled models, which fuse the casts.

        The weights must stay where they are in memory.
        """
        self._stages = [found for stage in model.children() if (found := _cast_in(stage))]
        for weight in (getattr(*place) for stage in self._stages for place in stage):
            self.copies[weight] = torch.empty_like(weight, dtype=self._dtype, requires_grad=False)
        model.register_forward_pre_hook(self._cover)
        model.register_forward_hook(self._uncover, always_call=True)

    @torch.no_grad()
    def refresh(self) -> None:
        """Cast all weights if torch has changed any of them; about 10 us of the host's time if not."""
        versions = [weight._version for weight in self.copies]
        if versions != self._versions:
            torch._foreach_copy_(list(self.copies.values()), list(self.copies))
            self._versions = versions

    def _cover(self, model: nn.Module, _: tuple[Tensor]) -> None:
        """Shadow each weight with its copy: an instance attribute takes precedence over a Parameter of its name."""
        if not torch.is_autocast_enabled(next(iter(self.copies)).device.type):
            return
        self.refresh()
        for stage in self._stages:
            weights = [getattr(*place) for place in stage]
            tied = _Tied.apply(*weights, *(self.copies[weight] for weight in weights))
            for (module, name), copy in zip(stage, tied, strict=True):
                module.__dict__[name] = copy

    def _uncover(self, *_: object) -> None:
        for stage in self._stages:
            for module, name in stage:
                module.__dict__.pop(name, None)


def _cast_in(stage: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return the module and the name of each parameter that autocast would cast."""
    layers = [module for module in stage.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    return [(layer, name) for layer in layers for name, _ in layer.named_parameters(recurse=False)]


class _Tied(torch.autograd.Function):
    """Return the second half of the tensors, copies of the first half, and pass their gradients to the first half."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.dtype = tensors[0].dtype
        return tensors[len(tensors) // 2:]

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        wanted = [i for i in range(len(gradients)) if ctx.needs_input_grad[i]]      # frozen weights get none
        cast = [torch.empty_like(gradients[i], dtype=ctx.dtype) for i in wanted]
        if wanted:
            torch._foreach_copy_(cast, [gradients[i] for i in wanted])
        found: list[Tensor | None] = [None] * 2 * len(gradients)
        for i, gradient in zip(wanted, cast, strict=True):
            found[i] = gradient
        return tuple(found)
