"""Fused operations, a module each: in plain torch, and as a GPU kernel that replaces it."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from resnet_recipes.ops import batch_norm, blur, max_pool, trial

#: The names of the operations, and the modules that define them.
FUSED = {"blur": blur, "max_pool": max_pool, "batch_norm": batch_norm}


class Operations(NamedTuple):
    """The operations that a network calls; and notes on the choice, one sentence each."""

    blur: Callable[..., Tensor] = blur.plain
    max_pool: Callable[..., Tensor] = max_pool.plain
    batch_norm: Callable[..., Tensor | tuple[Tensor, Tensor]] = batch_norm.plain
    notes: tuple[str, ...] = ()

    def fused(self) -> list[str]:
        """Return the names of the operations that are not plain torch."""
        return [name for name, module in FUSED.items() if getattr(self, name) is not module.plain]

    def without(self, name: str, note: str) -> "Operations":
        """Return the operations with one of them in plain torch, and a note that says why."""
        return self._replace(**{name: FUSED[name].plain}, notes=(*self.notes, note))


@cache
def choose(device: torch.device, dtype: torch.dtype) -> Operations:
    """Return the fused operations on a GPU, and the plain torch ones elsewhere; once a process.

    Each kernel has been compared with plain torch on a machine like this one; the first run on a
    machine does so, which takes seconds to compile the kernels. Where one has failed or given
    different results, plain torch is used instead and `notes` says so.
    """
    if device.type != "cuda":
        return Operations()
    return _chosen(trial.recall(list(FUSED), device, dtype))


def compare(device: torch.device, dtype: torch.dtype, reference: torch.device) -> Operations:
    """Choose as for a run, but by comparing each kernel now, with plain torch on `reference`."""
    return _chosen(trial.verdicts(list(FUSED), device, dtype, reference))


def _chosen(verdicts: trial.Verdicts) -> Operations:
    operations = Operations(**{name: module.fused for name, module in FUSED.items()})
    for name, why in verdicts.items():
        if why:
            note = f"the {name} kernel cannot be used on this GPU; using plain torch instead: {why}"
            operations = operations.without(name, note)
    return operations
