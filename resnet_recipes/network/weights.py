"""The trained weights, as a file for other programs."""

import copy
from pathlib import Path

import torch
from torch import nn

from resnet_recipes.atomic import replacing
from resnet_recipes.methods.stochastic_depth import fold


def write_weights(model: nn.Module, path: Path) -> Path:
    """Write the weights of `model`, which stays as it is, under torchvision's names; return `path`.

    StochasticDepth's factors are folded into the last BatchNorm of each block, so that torchvision's own ResNet gives
    the same output.
    BlurPool cannot be folded: with it, the weights need its layers at inference too.
    """
    with torch.no_grad():
        model = copy.deepcopy(model)
        fold(model)
    state = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
    with replacing(path) as file:
        torch.save(state, file)
    return path
