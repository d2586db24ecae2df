"""The network of a recipe, ready to train or to evaluate."""

import torch
from torch import Tensor, nn

from resnet_recipes.config import Recipe
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network.model import build_model


def build_network(recipe: Recipe, methods: Stack, num_classes: int, device: torch.device) -> nn.Module:
    """Return the recipe's network on `device`: initialised from its seed, changed by its methods, in its memory format.

    Every caller gets the same weights. Methods change it before it is moved, so that modules they add are moved too.
    """
    model = build_model(recipe.model, num_classes, recipe.seed)
    methods.modify_model(model)
    if recipe.precision.channels_last:
        return model.to(device, memory_format=torch.channels_last)
    model.register_forward_pre_hook(_as_nchw)       # a convolution follows its input's memory format, not its weights'
    return model.to(device)


def _as_nchw(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
    return inputs[0].contiguous()
