"""Build the networks with a recipe's initialisation."""

import torch
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck

from resnet_recipes.config import ModelConfig

#: Layers that each initialisation redraws; all others keep torchvision's.
KAIMING: dict[str, tuple[type[nn.Module], ...]] = {
    "kaiming_normal": (nn.Conv2d, nn.Linear), "kaiming_convs": (nn.Conv2d,), "torchvision": (),
}


def build_model(config: ModelConfig, num_classes: int, seed: int) -> nn.Module:
    """Return torchvision's ResNet ("v1.5": stride in the 3x3 convolution), initialised as in the recipe, on the CPU.

    Every rank gets the same weights from the same seed.
    """
    torch.manual_seed(seed)
    model = getattr(torchvision.models, config.name)(num_classes=num_classes)
    for module in model.modules():
        if isinstance(module, KAIMING[config.init]):
            nn.init.kaiming_normal_(module.weight)          # fan_in, unlike torchvision's fan_out
        if config.bn_init == "uniform" and isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight)
            nn.init.zeros_(module.bias)
        if config.zero_init_last_bn and isinstance(module, BasicBlock | Bottleneck):
            nn.init.zeros_(module.bn3.weight if isinstance(module, Bottleneck) else module.bn2.weight)
    return model
