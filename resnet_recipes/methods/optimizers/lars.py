"""Gradient descent with each layer's learning rate scaled to the norm of its weights."""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from resnet_recipes.base.limits import BelowOne, Bounds, Positive
from resnet_recipes.methods.optimizers.base import (
    OptimizerSettings,
    ScalerAwareOptimizer,
    fill_state_with_zeros,
    read_scaling,
)


@dataclass
class LARS(OptimizerSettings):
    """SGD with learning rates scaled to the norms of weights (You et al., 2017, arXiv:1708.03888).

    In each step, `m <- momentum * m + lr * trust * (g + weight_decay * w)`, then `w <- w - m`. Here
    `trust = trust_coefficient * |w| / (|g| + weight_decay * |w| + eps)`. It is 1 if a norm is 0 and
    for parameters without decay. The learning rate is inside the momentum, as in the MLPerf
    reference; in torch.optim.SGD it is outside.
    """

    cost = (
        "one fused and four foreach passes over the weights, five with float16; one tensor per "
        "parameter in memory."
    )
    gain = "75.9% in 35 epochs at batch size 3264 (MLPerf Training, reference convergence points)."
    avoid_when = "The batch is smaller than about 2048, where SGD works well."
    usual_lr = 8.3  # 10.5 for a batch of 3264
    lr_power = 0.5

    name: str = "lars"
    lr: float = 10.5  # peak learning rate, for the global batch
    weight_decay: float = 5.0e-5  # L2 coefficient
    # parameters without decay: none | bn_in_name | one_dimensional | norm_layers
    no_decay: str = "one_dimensional"
    momentum: BelowOne = 0.9  # fraction of the momentum kept from step to step
    trust_coefficient: Positive = 0.001  # factor on |w| / |g|
    eps: Annotated[float, Bounds(least=0)] = 0.0  # term added to the denominator

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        return TorchLARS(self.groups(model), self)


class TorchLARS(ScalerAwareOptimizer):
    """LARS built on fused torch SGD at lr=1; gradients are scaled by each tensor's lr."""

    def __init__(self, groups: list[dict[str, Any]], settings: LARS):
        super().__init__(
            groups,
            {
                "lr": settings.lr,
                "momentum": settings.momentum,
                "weight_decay": 0.0,
                "eps": settings.eps,
                "trust_coefficient": settings.trust_coefficient,
            },
        )
        fill_state_with_zeros(self, "momentum_buffer")

    def update(self, params: list[nn.Parameter], group: dict[str, Any]) -> None:
        scale, overflow = read_scaling(self)
        lr = group["lr"]
        decay = group["weight_decay"]
        grads = [p.grad for p in params]
        if scale is not None:
            torch._foreach_mul_(grads, 1 / scale)
        if decay:
            trust = _compute_trust(params, grads, group)
            torch._foreach_add_(grads, params, alpha=decay)
            torch._foreach_mul_(grads, (lr * trust).unbind())
        else:
            torch._foreach_mul_(grads, lr)
        sgd(
            params,
            grads,
            [self.state[p]["momentum_buffer"] for p in params],
            fused=True,
            found_inf=overflow,
            weight_decay=0.0,
            momentum=group["momentum"],
            lr=1.0,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


def _compute_trust(weights: list[Tensor], grads: list[Tensor], group: dict[str, Any]) -> Tensor:
    weight = torch.stack(torch._foreach_norm(weights))
    grad = torch.stack(torch._foreach_norm(grads))
    trust = (
        group["trust_coefficient"] * weight / (grad + group["weight_decay"] * weight + group["eps"])
    )
    return torch.where((weight > 0) & (grad > 0), trust, 1.0)
