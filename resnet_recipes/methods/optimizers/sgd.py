"""Stochastic gradient descent with momentum."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from resnet_recipes.base.errors import Problem, Value
from resnet_recipes.base.limits import BelowOne
from resnet_recipes.methods.optimizers.base import OptimizerSettings, fill_state_with_zeros


@dataclass
class SGD(OptimizerSettings):
    """SGD with momentum and L2 regularization (Sutskever et al., 2013, PMLR 28(3):1139-1147).

    In each step, `m <- momentum * m + g + weight_decay * w`, then `w <- w - lr * m`. The decay is
    part of the momentum and multiplied by the learning rate. This is torch.optim.SGD.
    """

    cost = "one fused pass over the weights; one tensor per parameter in memory."
    gain = "most published ResNets were trained with it."
    avoid_when = (
        "You tune the learning rate: the best weight decay depends on it, which decoupled_sgdw "
        "avoids."
    )

    name: str = "sgd"
    lr: float = 2.048  # peak learning rate, for the global batch
    # L2 coefficient; 3.05e-5 at lr 2.048, momentum 0.875 equals 5e-4 in decoupled_sgdw
    weight_decay: float = 5.0e-4
    momentum: BelowOne = 0.875  # fraction of the momentum kept from step to step
    nesterov: bool = False  # look ahead by one step of momentum

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.nesterov and self.momentum == 0:
            yield Problem("nesterov", True, "needs momentum above 0", Value("false"))

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        return TorchSGD(self.groups(model), self)


class TorchSGD(torch.optim.SGD):
    """Fused torch SGD with an initial momentum of 0."""

    def __init__(self, groups: list[dict[str, Any]], settings: SGD):
        super().__init__(
            groups,
            lr=settings.lr,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
            fused=True,
        )
        if settings.momentum:  # torch leaves it uninitialized if float16 overflows in step 0
            fill_state_with_zeros(self, "momentum_buffer")
