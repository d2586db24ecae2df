"""Which network is trained, and from which weights: the `model` section of a recipe."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from resnet_recipes.base.errors import Problem
from resnet_recipes.base.section import Section

#: torchvision's ResNets, "v1.5": whether they have bottlenecks, and the number of blocks in each of
#: their four stages.
NETWORKS = {
    "resnet18": (False, (2, 2, 2, 2)),
    "resnet34": (False, (3, 4, 6, 3)),
    "resnet50": (True, (3, 4, 6, 3)),
    "resnet101": (True, (3, 4, 23, 3)),
    "resnet152": (True, (3, 8, 36, 3)),
}

#: How far from the input a network may be frozen; backbone: all but the classifier.
FREEZABLE = ("none", "stem", "layer1", "layer2", "layer3", "backbone")

CHOICES = {
    "name": NETWORKS,
    "init": ("kaiming_normal", "kaiming_convs", "torchvision"),
    "bn_init": ("uniform", "ones"),
    "freeze": FREEZABLE,
}


@dataclass
class ModelConfig(Section):
    """The `model` section."""

    _place: ClassVar[str] = "model."

    # resnet18 | resnet34 | resnet50 | resnet101 | resnet152 (torchvision's, "v1.5")
    name: str = "resnet50"
    num_classes: int | str = "auto"  # auto: the number of class folders in the data
    # kaiming_normal (fan_in) | kaiming_convs (no linear) | torchvision (fan_out)
    init: str = "kaiming_normal"
    bn_init: str = "uniform"  # BatchNorm weights: uniform, U[0, 1) | ones
    # the last BatchNorm of each residual branch starts at 0: the branch is silent
    zero_init_last_bn: bool = False
    # initial weights: a .pt or .safetensors file, a run | torchvision | timm:NAME
    weights: str = ""
    freeze: str = "none"  # not trained, from the input up to: stem | layer1 to layer3 | backbone

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong; keys are relative to `model`."""
        for key, known in CHOICES.items():
            if getattr(self, key) not in known:
                yield Problem(key, getattr(self, key), f"must be one of {', '.join(known)}")
        if self.num_classes != "auto" and not (
            isinstance(self.num_classes, int) and 2 <= self.num_classes <= 2**20
        ):
            yield Problem(
                "num_classes", self.num_classes, f"must be auto or a number from 2 to {2**20}"
            )
        if self.freeze != "none" and not self.weights:
            yield Problem(
                "freeze", self.freeze, "would freeze random weights", "model.weights=torchvision"
            )
