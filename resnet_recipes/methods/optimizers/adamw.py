"""Adam with decoupled weight decay."""

from dataclasses import dataclass

import torch
from torch import nn

from resnet_recipes.base.limits import BelowOne, Positive
from resnet_recipes.base.names import DOCS
from resnet_recipes.methods.optimizers.base import OptimizerSettings


@dataclass
class AdamW(OptimizerSettings):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019, arXiv:1711.05101).

    In each step, `w <- w * (1 - lr * weight_decay)`, then Adam. This is torch.optim.AdamW.
    """

    cost = "one fused pass over the weights; two tensors per parameter in memory."
    gain = (
        "not measured on ImageNet. Measured here, in short fine-tuning runs from ImageNet weights: "
        f"+7.9 points over SGD (standard error 2.0; {DOCS}/lab/finetuning_choice.html)."
    )
    avoid_when = (
        "A ResNet is trained from scratch and its final accuracy matters most: it is usually "
        "higher with SGD."
    )

    state_copies = 2
    usual_lr = 1.0e-3  # the torch default
    lr_power = 0.5
    name: str = "adamw"
    lr: float = 1.0e-3  # peak learning rate, for the global batch
    weight_decay: float = 0.01  # in a step, a weight loses lr * weight_decay of its value
    # decay rates of the moving averages of the gradient and its square
    betas: tuple[BelowOne, BelowOne] = (0.9, 0.999)
    eps: Positive = 1.0e-8  # term added to the square root in the denominator

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            self.groups(model), lr=self.lr, betas=self.betas, eps=self.eps, fused=True
        )
