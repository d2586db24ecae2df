"""Fused operations: each file has an operation, as torch's own code and as what runs on a GPU in its place."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from resnet_recipes.ops import blur
from resnet_recipes.ops.contact import fault


class Operations(NamedTuple):
    """What the modules of a network call, and what there is to say about the choice, a sentence each."""

    blur: Callable[..., Tensor] = blur.plain
    notes: tuple[str, ...] = ()


def choose(device: torch.device, dtype: torch.dtype) -> Operations:
    """Return the fused operations on a GPU, torch's own elsewhere.

    Each is first compared with torch's own on this device; one that fails or differs is left out, and `notes` says so.
    Costs the seconds that the kernels take to compile, once a machine.
    """
    if device.type != "cuda":
        return Operations()
    found = fault(blur, device, dtype)
    if found:
        return Operations(notes=(f"blurring without the fused kernel, which cannot be used on this device: {found}",))
    return Operations(blur=blur.fused)


def fit(model: nn.Module, operations: Operations) -> None:
    """Make the modules of `model` call `operations`. Parameters and state-dict keys stay as they are."""
    for module in model.modules():
        if isinstance(module, blur.Blurring):
            module.blur = operations.blur
