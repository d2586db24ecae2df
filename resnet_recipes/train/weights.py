"""The trained weights, as a file for other programs."""

import copy
from pathlib import Path

import torch

from resnet_recipes.atomic import replacing
from resnet_recipes.methods.stochastic_depth import fold
from resnet_recipes.train.run import Run


def write_weights(run: Run, path: Path) -> Path:
    """Write the weights that were evaluated (EMA's, if the recipe keeps them) under torchvision's names; return `path`.

    StochasticDepth's factors are folded into the last BatchNorm of each block, so that torchvision's own ResNet gives the same output.
    BlurPool cannot be folded: with it, the weights need its layers at inference too.
    """
    with torch.no_grad(), run.methods.eval_weights(run.model):
        model = copy.deepcopy(run.model)
        fold(model)
    state = {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
    with replacing(path) as file:
        torch.save(state, file)
    return path
