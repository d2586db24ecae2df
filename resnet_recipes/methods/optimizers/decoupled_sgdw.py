"""Stochastic gradient descent whose weight decay is decoupled from the gradient."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from resnet_recipes.methods.optimizers.base import read_scaling, select_with_gradient
from resnet_recipes.methods.optimizers.sgd import SGD, TorchSGD


@dataclass
class DecoupledSGDW(SGD):
    """SGD with decoupled weight decay (Loshchilov and Hutter, 2019, arXiv:1711.05101).

    In each step, with the peak learning rate lr0: `w <- w * (1 - lr / lr0 * weight_decay)`, then
    SGD with momentum on the gradient without decay. So `weight_decay` is the fraction of a weight
    lost in one step at the peak learning rate.
    """

    cost = "two passes over the weights; one tensor per parameter in memory."
    gain = (
        "lr and decay can be tuned separately; part of the MosaicML recipes, not "
        "measured separately."
    )
    avoid_when = "Your weight decay was tuned for SGD: its value cannot be reused."

    name: str = "decoupled_sgdw"
    weight_decay: float = 5.0e-4  # fraction of a weight lost in one step at the peak lr

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        return TorchDecoupledSGDW(self.groups(model), self)


class TorchDecoupledSGDW(TorchSGD):
    """SGD with decoupled decay; "weight_decay" of the torch optimizer stays 0."""

    def __init__(self, groups: list[dict[str, Any]], settings: DecoupledSGDW):
        super().__init__(
            [
                group | {"weight_decay": 0.0, "decoupled_decay": group["weight_decay"]}
                for group in groups
            ],
            settings,
        )
        for group in self.param_groups:
            # the peak learning rate, because schedules change only "lr"
            group["initial_lr"] = settings.lr * group["lr_factor"]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        overflow = read_scaling(self).overflow
        for group in self.param_groups:
            decay = group["lr"] / group["initial_lr"] * group["decoupled_decay"]
            if decay and (params := select_with_gradient(group)):
                torch._foreach_mul_(params, 1 - decay * (1 if overflow is None else overflow == 0))
        super().step()
