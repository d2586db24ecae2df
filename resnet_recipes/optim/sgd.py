"""Stochastic gradient descent with momentum."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from resnet_recipes.base.errors import Problem
from resnet_recipes.ops import Operations
from resnet_recipes.optim.base import PLAIN, OptimizerSettings, momentum_problems, trainable
from resnet_recipes.optim.copies import Copies
from resnet_recipes.optim.native.steps import native_steps


@dataclass
class SGD(OptimizerSettings):
    """Gradient descent with momentum and L2 regularisation (Sutskever et al., 2013, PMLR 28(3):1139-1147).

    `m <- momentum * m + g + weight_decay * w`, then `w <- w - lr * m`: the decay is part of the
    momentum and multiplied by the rate. This is torch.optim.SGD.
    """

    cost: ClassVar[str] = "one fused pass, and one tensor a parameter in memory."
    gain: ClassVar[str] = "most published ResNets were trained with it."
    avoid_when: ClassVar[str] = (
        "You tune the learning rate: the best weight decay depends on it, which decoupled_sgdw "
        "avoids."
    )

    name: str = "sgd"
    lr: float = 2.048  # peak learning rate, for the global batch
    # L2 coefficient; 3.05e-5 at lr 2.048, momentum 0.875 is decoupled_sgdw's 5e-4
    weight_decay: float = 5.0e-4
    momentum: float = 0.875  # fraction of the momentum kept from step to step
    nesterov: bool = False  # look ahead by one step of momentum

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        yield from momentum_problems(self.momentum)
        if self.nesterov and self.momentum == 0:
            yield Problem("nesterov", True, "needs momentum above 0", "optimizer.nesterov=false")

    def build(
        self,
        model: nn.Module,
        operations: Operations = PLAIN,
        copies: Copies | None = None,
    ) -> torch.optim.Optimizer:
        return TorchSGD(self.groups(model), self, operations, copies)


class TorchSGD(torch.optim.SGD):
    """torch's SGD, with steps by the native library where it can take them, else by an operation."""

    def __init__(
        self,
        groups: list[dict[str, Any]],
        settings: SGD,
        operations: Operations,
        copies: Copies | None,
    ):
        super().__init__(
            groups,
            lr=settings.lr,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
            fused=True,
        )
        for group in self.param_groups:
            for parameter in group["params"] if group["momentum"] else ():
                # torch leaves it uninitialised if float16 overflows in step 0
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self.native = native_steps("sgd", self)
        self._operation, self._copies = operations.sgd, Copies() if copies is None else copies

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        """Update the weights; `closure` is not supported."""
        # set by GradScaler
        scaler = [getattr(self, name, None) for name in ("grad_scale", "found_inf")]
        for group in self.param_groups:
            if not (params := trainable(group)):
                continue
            momentum = group["momentum"]
            means = [self.state[p]["momentum_buffer"] for p in params] if momentum else []
            rule = (
                group["lr"],
                1 - self.decay(group),
                group["weight_decay"],
                momentum,
                group["nesterov"],
            )
            if self.native:
                self.native.take(params, rule, **{"mean": means} if momentum else {})
            else:
                copies = [self._copies.get(p, p) for p in params]
                self._operation(params, [p.grad for p in params], means, copies, *rule, *scaler)
        if not self.native:
            self._copies.renewed()

    def decay(self, group: dict[str, Any]) -> float:
        """Return the fraction of each weight that a step removes, apart from the gradient."""
        return 0.0
