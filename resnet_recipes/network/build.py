"""The network of a recipe, ready to train or to evaluate."""

import torch
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck

from resnet_recipes import backbones
from resnet_recipes.base.architecture import ModelConfig
from resnet_recipes.methods.stack import Stack
from resnet_recipes.ops.sound import sound
from resnet_recipes.recipe.schema import Recipe

#: Layers that each initialisation redraws; all others keep their library's.
KAIMING: dict[str, tuple[type[nn.Module], ...]] = {
    "kaiming_normal": (nn.Conv2d, nn.Linear),
    "kaiming_convs": (nn.Conv2d,),
    "library": (),
}


def build_network(
    recipe: Recipe, methods: Stack, num_classes: int, device: torch.device
) -> nn.Module:
    """Return the recipe's network on `device`.

    Initialised from its seed, changed by its methods, in its memory format.

    Every caller gets the same weights. Methods change it before it is moved, so that modules they
    add are moved too.
    """
    model = build_model(recipe.model, num_classes, recipe.seed)
    methods.modify_model(model)
    if device.type == "cpu" or not backbones.is_resnet(model):  # on GPUs, no ResNet needs it
        model.forward = sound(model.forward)
    if recipe.precision.channels_last:
        return model.to(device, memory_format=torch.channels_last)
    # a convolution follows its input's memory format, not its weights'
    model.register_forward_pre_hook(lambda _, inputs: inputs[0].contiguous())
    return model.to(device)


def build_model(config: ModelConfig, num_classes: int, seed: int) -> nn.Module:
    """Return the network on the CPU, initialised as in the recipe.

    Torchvision's ResNets are "v1.5", with the stride in the 3x3 convolution. Every rank gets the
    same weights from the same seed.
    """
    torch.manual_seed(seed)
    model = backbones.build(config.name, num_classes, config.arguments)
    for module in model.modules():
        if isinstance(module, KAIMING[config.init]):
            nn.init.kaiming_normal_(module.weight)  # fan_in, unlike torchvision's fan_out
        if config.bn_init == "uniform" and isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight)
            nn.init.zeros_(module.bias)
        if config.zero_init_last_bn and isinstance(module, BasicBlock | Bottleneck):
            nn.init.zeros_(
                module.bn3.weight if isinstance(module, Bottleneck) else module.bn2.weight
            )
    return model
