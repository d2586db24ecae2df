"""Binary cross-entropy as the classification loss."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from torch import Tensor, nn

from resnet_recipes.backbones import find_classifier
from resnet_recipes.base.errors import Problem, Statement, Value
from resnet_recipes.base.limits import BelowOne, OneOf
from resnet_recipes.base.names import DOCS
from resnet_recipes.methods.base import Method


@dataclass
class BCELoss(Method):
    """Classify with a sigmoid per class, not a softmax (Beyer et al., 2020, arXiv:2006.07159).

    The loss is summed over classes and divided by N, not by N * K. The classifier bias starts at
    -ln K, so that every class starts with probability 1 / (K + 1). The recipes of timm, with LAMB,
    average over classes and keep the initial bias of the network (`reduction: mean`, `bias_init:
    false`). Their `threshold` turns mixed targets into 0 or 1.

    Evaluation still reports softmax cross-entropy, so a run's training and evaluation losses are
    not comparable.
    """

    name = "bce_loss"
    cost = "none."
    gain = (
        "+0.5 points over softmax cross-entropy at 36 and 90 epochs of a prototype of Medium "
        "(MosaicML, Mosaic ResNet deep dive, Table 8). Measured here: +1.9, not settled (-3.5 to "
        f"7.2), in 8 epochs of Mild on 20 classes of Tiny ImageNet ({DOCS}/lab/methods.html)."
    )
    avoid_when = (
        "`bias_init` is false: top-1 is then 0.4 points below softmax cross-entropy at 36 epochs, "
        "and 0.3 at 90 (Table 8). `reduction: mean` divides by N * K instead of N, so the usual "
        "learning rates are far too small."
    )

    # reduction of the loss over classes: sum | mean
    reduction: Annotated[str, OneOf("sum", "mean")] = "sum"
    threshold: BelowOne | None = None  # targets above this become 1, others 0; null: unchanged
    bias_init: bool = True  # start the classifier's bias at -ln K

    def provides(self, hook: str) -> bool:
        return super().provides(hook) and (hook != "modify_model" or self.bias_init)

    def modify_model(self, model: nn.Module) -> None:
        bias = model.get_submodule(find_classifier(model)).bias
        nn.init.constant_(bias, -math.log(len(bias)))

    def find_network_problems(self, model: nn.Module) -> Iterator[Problem]:
        if self.bias_init and model.get_submodule(find_classifier(model)).bias is None:
            clause = Statement("this network's classifier has no bias")
            yield Problem("bce_loss.bias_init", True, clause, Value("false"))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each example, computed in float32 for any dtype of the logits."""
        if self.threshold is not None:
            targets = (targets > self.threshold).float()
        losses = F.binary_cross_entropy_with_logits(logits.float(), targets, reduction="none")
        return losses.sum(1) if self.reduction == "sum" else losses.mean(1)
