"""The images that a network is traced with, and what of their shape may change."""

from typing import Any

import torch
from torch import Tensor, nn

from resnet_recipes.network.network import Network
from resnet_recipes.network.preprocessing import Preprocessed


def example(network: Network) -> Tensor:
    """Return images of unequal height and width, so that export takes neither as constant.

    They are square, of the size for evaluation, if the network takes no other.
    """
    if is_preprocessed(network):
        return torch.zeros(2, 64, 96, 3, dtype=torch.uint8)
    side = network.about.eval_size
    height, width = (64, 96) if takes_any_size(network.model) else (side, side)
    return torch.zeros(2, 3, height, width).to(next(network.model.parameters()))


def shapes(network: Network) -> tuple[dict[int, Any]]:
    """Return which sides of the images may change."""
    size = torch.export.Dim
    if is_preprocessed(network):
        return ({0: size("batch"), 1: size("height", min=2), 2: size("width", min=2)},)
    sides = {2: size("height", min=8), 3: size("width", min=8)}
    return ({0: size("batch")} | (sides if takes_any_size(network.model) else {}),)


def is_preprocessed(network: Network) -> bool:
    """Return whether a network has its preprocessing inside."""
    return isinstance(network.model, Preprocessed)


def takes_any_size(model: nn.Module) -> bool:
    """Return whether a network takes images that are small and wider than high."""
    return takes(model, 64, 96)


@torch.no_grad()
def takes(model: nn.Module, height: int, width: int) -> bool:
    """Return whether a network takes images of a size."""
    try:
        model(torch.zeros(2, 3, height, width).to(next(model.parameters())))
    except Exception:  # a library may raise anything for a size that its network does not take
        return False
    return True
