"""Fused operations, a module each: in plain torch, and as a GPU kernel that replaces it."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from resnet_recipes.ops import batch_norm, blur, stem
from resnet_recipes.ops.selftest import mismatch

_FUSED = (blur, batch_norm, stem)


class Operations(NamedTuple):
    """The operations that a network calls; and notes on the choice, one sentence each."""

    blur: Callable[..., Tensor] = blur.plain
    batch_norm: Callable[..., Tensor | tuple[Tensor, Tensor]] = batch_norm.plain
    stem: Callable[..., Tensor] = stem.plain
    notes: tuple[str, ...] = ()

    def fused(self) -> list[str]:
        """Return the names of the operations that are not plain torch."""
        plain = Operations()
        return [
            name
            for name in self._fields
            if name != "notes" and getattr(self, name) is not getattr(plain, name)
        ]


def choose(
    device: torch.device, dtype: torch.dtype, reference: torch.device | None = None
) -> Operations:
    """Return the fused operations on a GPU, and the plain torch ones elsewhere.

    Each kernel is first compared with plain torch on `reference`, by default the same device. If it
    fails or gives different results, plain torch is used instead and `notes` says so. Costs a few
    seconds the first time on a machine, to compile the kernels.
    """
    chosen, notes = {}, []
    for operation in _FUSED if device.type == "cuda" else ():
        name = operation.__name__.rpartition(".")[2]
        if found := mismatch(operation, device, dtype, reference or device):
            notes.append(
                f"the {name} kernel cannot be used on this GPU; using plain torch instead: {found}"
            )
        else:
            chosen[name] = operation.fused
    return Operations(**chosen, notes=tuple(notes))
