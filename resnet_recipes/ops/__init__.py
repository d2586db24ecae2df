"""Fused operations: each file has one, as torch's own code and as what runs on a GPU in its place."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from resnet_recipes.ops import augment, batch_norm, blur, cross_entropy, images, max_pool
from resnet_recipes.ops.contact import fault

_FUSED = (augment, images, blur, max_pool, batch_norm, cross_entropy)


class Operations(NamedTuple):
    """What a network and its methods call, and what there is to say about the choice, a sentence each."""

    augment: Callable[..., Tensor] = augment.plain
    images: Callable[..., Tensor] = images.plain
    blur: Callable[..., Tensor] = blur.plain
    max_pool: Callable[..., Tensor] = max_pool.plain
    batch_norm: Callable[..., tuple[Tensor, Tensor]] = batch_norm.plain
    cross_entropy: Callable[..., Tensor] = cross_entropy.plain
    notes: tuple[str, ...] = ()


def choose(device: torch.device, dtype: torch.dtype, reference: torch.device | None = None) -> Operations:
    """Return the fused operations on a GPU, torch's own elsewhere.

    Each is first compared with torch's own on `reference`, by default on this device; one that fails or differs is left
    out, and `notes` says so.
    Costs the seconds that the kernels take to compile, once a machine.
    """
    chosen, notes = {}, []
    for operation in _FUSED if device.type == "cuda" else ():
        name = operation.__name__.rpartition(".")[2]
        if found := fault(operation, device, dtype, reference or device):
            notes.append(f"the kernel of {name} cannot be used on this GPU, so torch's own operations are: {found}")
        else:
            chosen[name] = operation.fused
    return Operations(**chosen, notes=tuple(notes))
