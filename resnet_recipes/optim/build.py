"""Stochastic gradient descent, with weight decay coupled to or decoupled from the gradient."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from resnet_recipes.config import OptimizerConfig


class DecoupledSGDW(torch.optim.SGD):
    """SGD whose weight decay follows the shape of the learning rate, not its size (Loshchilov and Hutter, 2019, arXiv:1711.05101).

    Per step, with the peak rate lr0: `w <- w * (1 - lr / lr0 * weight_decay)`, then SGD with momentum on the undecayed gradient.
    `weight_decay` is thus the share of a weight that is lost in a step at the peak rate. Cost: one fused kernel and one foreach pass;
    it never waits for the device, not under a gradient scaler either. Parameters without gradient are left alone.
    """

    def __init__(self, params: list[Tensor], config: OptimizerConfig):
        super().__init__(params, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov, fused=True)
        for group in self.param_groups:
            group["initial_lr"] = config.lr                     # the peak: schedules change "lr" alone
            group["decoupled_decay"] = config.weight_decay      # "weight_decay" stays 0: SGD itself must not see it

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Decay, then update. Under a GradScaler an overflow leaves weights and momentum as they are."""
        overflow = getattr(self, "found_inf", None)             # set by GradScaler around this call: a tensor, 0 or more
        for group in self.param_groups:
            decay = group["lr"] / group["initial_lr"] * group["decoupled_decay"]
            weights = [p for p in group["params"] if p.grad is not None]
            if decay and weights:
                torch._foreach_mul_(weights, 1 - decay if overflow is None else 1 - decay * (overflow == 0))
        return super().step(closure)


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Return the recipe's optimizer over all parameters; BatchNorm and biases decay too, as in the published recipes."""
    params = [p for p in model.parameters() if p.requires_grad]
    if config.name == "decoupled_sgdw":
        optimizer = DecoupledSGDW(params, config)
    else:
        optimizer = torch.optim.SGD(
            params, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov, weight_decay=config.weight_decay, fused=True
        )
    if config.momentum:
        for p in params:        # zeros now: torch's fused SGD would start from uninitialised memory if float16 overflowed in the first step
            optimizer.state[p]["momentum_buffer"] = torch.zeros_like(p)
    return optimizer
