"""Fused operations, in plain torch and as GPU kernels, and the checks before they are used."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from resnet_recipes.ops import batch_norm, blur, max_pool, trial

#: The names of the operations, and the modules that define them.
MODULES = {"blur": blur, "max_pool": max_pool, "batch_norm": batch_norm}


class Operations(NamedTuple):
    """The operations that a network calls, and notes on the choice, one sentence each."""

    blur: Callable[..., Tensor] = blur.unfused
    max_pool: Callable[..., Tensor] = max_pool.unfused
    batch_norm: Callable[..., Tensor | tuple[Tensor, ...]] = batch_norm.unfused
    notes: tuple[str, ...] = ()

    def list_fused(self) -> list[str]:
        """Return the names of the operations that are GPU kernels."""
        return [
            name for name, module in MODULES.items() if getattr(self, name) is not module.unfused
        ]

    def without(self, name: str, note: str) -> "Operations":
        """Return the operations with one replaced by plain torch, and a note with the reason."""
        return self._replace(**{name: MODULES[name].unfused}, notes=(*self.notes, note))


@cache
def choose(device: torch.device, dtype: torch.dtype) -> Operations:
    """Return the fused operations on a GPU and plain torch elsewhere, cached per process.

    The first run on a machine compiles each kernel, which takes seconds, and compares it with plain
    torch. If a kernel fails or gives different results, plain torch is used instead, and `notes`
    explains this.
    """
    if device.type != "cuda":
        return Operations()
    return _choose_by(trial.get_verdicts(list(MODULES), device, dtype))


def compare(device: torch.device, dtype: torch.dtype, reference: torch.device) -> Operations:
    """Choose as `choose` does, but compare each kernel now with plain torch on `reference`."""
    return _choose_by(trial.run_trials(list(MODULES), device, dtype, reference))


def _choose_by(verdicts: trial.Verdicts) -> Operations:
    operations = Operations(**{name: module.fused for name, module in MODULES.items()})
    for name, why in verdicts.items():
        if why:
            note = f"the {name} kernel cannot be used on this GPU; using plain torch instead: {why}"
            operations = operations.without(name, note)
    return operations
