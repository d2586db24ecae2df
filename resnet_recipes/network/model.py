"""The networks, with the initialisation that a recipe names."""

import torch
import torchvision
from torch import nn

from resnet_recipes.config import ModelConfig


def build_model(config: ModelConfig, num_classes: int, seed: int) -> nn.Module:
    """Return torchvision's ResNet ("v1.5": stride in the 3x3 convolution), initialised by the recipe, on the CPU.

    Every rank that calls it with the same seed gets the same weights.
    """
    torch.manual_seed(seed)
    model = getattr(torchvision.models, config.name)(num_classes=num_classes)
    for module in model.modules():
        if config.init == "kaiming_normal" and isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)          # fan_in: not torchvision's fan_out
        if config.bn_init == "uniform" and isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight)
            nn.init.zeros_(module.bias)
    return model
