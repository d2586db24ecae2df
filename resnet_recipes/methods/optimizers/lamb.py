"""Adam with each layer's step scaled to the norm of its weights."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim.adam import adam

from resnet_recipes.base.limits import BelowOne, Positive
from resnet_recipes.methods.optimizers.base import (
    OptimizerSettings,
    ScalerAwareOptimizer,
    fill_state_with_zeros,
    read_scaling,
)


@dataclass
class LAMB(OptimizerSettings):
    """Adam with steps scaled to the norms of weights (You et al., 2020, arXiv:1904.00962).

    In each step, `u = adam(g) + weight_decay * w`, then `w <- w - lr * |w| / |u| * u`. As in timm,
    the ratio is 1 if a norm is 0 and for parameters without decay. The full gradient is clipped to
    the norm `clip_norm`.
    """

    cost = (
        "one fused and four foreach passes over the weights; up to three tensors per parameter in "
        "memory, two of them in checkpoints."
    )
    gain = (
        "80.4% at 600 epochs with mean binary cross-entropy (Wightman et al., 2021, "
        "arXiv:2110.00476, A1)."
    )
    avoid_when = "The run is short: its published recipes train for 100 to 600 epochs."

    state_copies = 2
    scratch_copies = 1
    usual_lr = 5.0e-3
    lr_power = 0.5
    name: str = "lamb"
    lr: float = 5.0e-3  # peak learning rate, for the global batch
    weight_decay: float = 0.02  # fraction of each weight that is added to its update
    # parameters without decay: none | bn_in_name | one_dimensional | norm_layers
    no_decay: str = "one_dimensional"
    clip_norm: float | None = 1.0  # maximum L2 norm of the full gradient; null: no clipping
    # decay rates of the moving averages of the gradient and its square
    betas: tuple[BelowOne, BelowOne] = (0.9, 0.999)
    eps: Positive = 1.0e-6  # term added to the square root in the denominator

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        return TorchLAMB(self.groups(model), self)


class TorchLAMB(ScalerAwareOptimizer):
    """LAMB built on fused torch Adam, which writes the update into a scratch tensor."""

    def __init__(self, groups: list[dict[str, Any]], settings: LAMB):
        super().__init__(
            groups,
            {
                "lr": settings.lr,
                "betas": settings.betas,
                "eps": settings.eps,
                "weight_decay": 0.0,
                "fused": True,
            },
        )
        fill_state_with_zeros(self, "exp_avg", "exp_avg_sq")
        for parameter, state in self.state.items():
            state["step"] = torch.zeros((), device=parameter.device)
        decaying = [
            p for group in self.param_groups if group["weight_decay"] for p in group["params"]
        ]
        self._copies = {p: torch.empty_like(p) for p in decaying}

    def update(self, params: list[nn.Parameter], group: dict[str, Any]) -> None:
        scale, overflow = read_scaling(self)
        states = [self.state[p] for p in params]
        decay = group["weight_decay"]
        # If the gradient overflowed, Adam changes nothing.
        step = partial(
            adam,
            grads=[p.grad for p in params],
            exp_avgs=[state["exp_avg"] for state in states],
            exp_avg_sqs=[state["exp_avg_sq"] for state in states],
            max_exp_avg_sqs=[],
            state_steps=[state["step"] for state in states],
            fused=True,
            grad_scale=scale,
            found_inf=overflow,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=0.0,
            eps=group["eps"],
            maximize=False,
        )
        if not decay:
            step(params, lr=group["lr"])
            return
        updates = [self._copies[p] for p in params]
        torch._foreach_copy_(updates, params)
        step(updates, lr=-1 / decay)  # w + adam / decay: the update / decay
        weight, update = (
            torch.stack(torch._foreach_norm(tensors)) for tensors in (params, updates)
        )
        ratio = torch.where((weight > 0) & (update > 0), weight / update, decay)
        if overflow is not None:
            ratio *= overflow == 0
        torch._foreach_addcmul_(params, updates, ratio.unbind(), value=-group["lr"])
