"""The trained weights, as a file for other programs."""

import os
from pathlib import Path

import torch

from resnet_recipes.train.run import Run


def write_weights(run: Run, path: Path) -> Path:
    """Write the weights that were evaluated (EMA's, if the recipe keeps them) under torchvision's names; return `path`.

    BlurPool and StochasticDepth are part of the network and have no parameters: `resnet-recipes export` says what inference needs.
    """
    with run.methods.eval_weights(run.model):
        state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in run.model.state_dict().items()}
    part = path.with_name(path.name + ".tmp")
    with part.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    return path
