"""Stochastic gradient descent whose weight decay is decoupled from the gradient."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from resnet_recipes.optim.base import trainable
from resnet_recipes.optim.sgd import SGD, with_momentum


@dataclass
class DecoupledSGDW(SGD):
    """SGD whose decay follows the rate's shape, not its size (Loshchilov and Hutter, 2019, arXiv:1711.05101).

    Per step, with the peak rate lr0: `w <- w * (1 - lr / lr0 * weight_decay)`, then SGD with momentum on the undecayed
    gradient. `weight_decay` is thus the share of a weight that is lost in a step at the peak rate.
    """

    cost: ClassVar[str] = "one foreach and one fused pass, and one tensor a parameter in memory."
    gain: ClassVar[str] = "rate and decay can be tuned separately; part of MosaicML's recipes, not measured by itself."
    hurts: ClassVar[str] = "nothing known; its weight_decay is not SGD's, so values cannot be carried over."

    name: str = "decoupled_sgdw"
    weight_decay: float = 5.0e-4        # share of a weight that is lost in a step at the peak rate

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        return with_momentum(TorchDecoupledSGDW(self.groups(model), self))


class TorchDecoupledSGDW(torch.optim.SGD):
    """torch's SGD after its own decay; torch's "weight_decay" stays 0."""

    def __init__(self, groups: list[dict[str, Any]], settings: DecoupledSGDW):
        groups = [group | {"weight_decay": 0.0, "decoupled_decay": group["weight_decay"]} for group in groups]
        super().__init__(groups, lr=settings.lr, momentum=settings.momentum, nesterov=settings.nesterov, fused=True)
        for group in self.param_groups:
            group["initial_lr"] = settings.lr * group["rate"]       # the peak: schedules change "lr" alone

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Decay, then update."""
        overflow = getattr(self, "found_inf", None)         # set by GradScaler around this call: a tensor, 0 or more
        for group in self.param_groups:
            weights = trainable(group) if group["decoupled_decay"] else ()
            if weights:
                decay = group["lr"] / group["initial_lr"] * group["decoupled_decay"]
                torch._foreach_mul_(weights, 1 - decay if overflow is None else 1 - decay * (overflow == 0))
        return super().step(closure)
