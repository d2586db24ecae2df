"""Optimizer steps by the native library, on float32 parameters in a CPU's memory."""

import ctypes
import functools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.ops.memory import matched, require

PATH = Path(__file__).with_name("libsteps.so")

#: One parameter as src/steps.cpp sees it: addresses, 0 for a state it does not have, and its number
#: of values.
PARAMETER = np.dtype(
    [
        ("weight", "u8"),
        ("grad", "u8"),
        ("mean", "u8"),
        ("square", "u8"),
        ("count", "u8"),
        ("size", "i8"),
    ]
)

#: Starting a thread for fewer values costs more than it gains.
VALUES_PER_THREAD = 1 << 18


@functools.cache
def library() -> ctypes.CDLL | None:
    """Load the library; None if it was not built from these sources when resnet-recipes was installed."""
    try:
        loaded = ctypes.CDLL(str(PATH))
        if loaded.parameter_bytes() != PARAMETER.itemsize:
            return None
    except (OSError, AttributeError):
        return None
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    for function in (loaded.step_sgd, loaded.step_lars):
        function.restype, function.argtypes = (
            None,
            [pointer, integer, ctypes.c_int, pointer, pointer],
        )
    loaded.step_lamb.restype, loaded.step_lamb.argtypes = (
        None,
        [*loaded.step_sgd.argtypes, pointer, integer],
    )
    return loaded


def native_steps(rule: str, optimizer: torch.optim.Optimizer) -> "NativeSteps | None":
    """Return the native steps of a rule; None if the library or the optimizer's parameters do not allow them."""
    return NativeSteps(rule, optimizer) if _is_suitable(optimizer) and library() else None


def note_on(optimizer: torch.optim.Optimizer) -> str:
    """Return a note if the optimizer would step natively, had the library been built; else nothing."""
    if getattr(optimizer, "native", True) or not _is_suitable(optimizer):
        return ""
    return (
        "the optimizer steps with torch's operations, at about half the speed: the native "
        "optimizer steps were "
        "not built when resnet-recipes was installed; resnet-recipes doctor native"
    )


def _is_suitable(optimizer: torch.optim.Optimizer) -> bool:
    return all(
        p.device.type == "cpu" and p.dtype == torch.float32 and _is_dense(p)
        for p in _parameters_of(optimizer)
    )


def _is_dense(tensor: Tensor) -> bool:
    return tensor.is_contiguous() or (
        tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    )


def _parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class NativeSteps:
    """Steps by one rule: `sgd`, `lars` or `lamb`.

    Under a GradScaler the library divides the gradients by its scale, and changes nothing if they
    overflowed.
    """

    def __init__(self, rule: str, optimizer: torch.optim.Optimizer):
        """Reserve memory: for `lamb`, that of the largest parameter for each thread."""
        self._step, self._optimizer = getattr(library(), f"step_{rule}"), optimizer
        sizes = [parameter.numel() for parameter in _parameters_of(optimizer)]
        self._threads = min(torch.get_num_threads(), 1 + sum(sizes) // VALUES_PER_THREAD)
        self._scratch = torch.empty(self._threads, max(sizes)) if rule == "lamb" else None

    def take(
        self, params: list[Tensor], settings: tuple[float, ...], **states: list[Tensor]
    ) -> None:
        """Step each parameter along its gradient; settings are in the order of src/steps.cpp.

        A gradient in another memory format than its parameter is copied. Raises RuntimeError for
        such a state.
        """
        require(params, {name: tensors for name, tensors in states.items() if name != "count"})
        grads = matched(params, [p.grad for p in params])
        rows = np.zeros(len(params), PARAMETER)
        for name, tensors in {"weight": params, "grad": grads, **states}.items():
            rows[name] = [tensor.data_ptr() for tensor in tensors]
        rows["size"] = [parameter.numel() for parameter in params]
        # set by GradScaler
        scaler = [getattr(self._optimizer, name, None) for name in ("grad_scale", "found_inf")]
        scaler = np.array([0 if tensor is None else tensor.data_ptr() for tensor in scaler], "u8")
        settings = np.array(settings, "f8")
        scratch = (
            () if self._scratch is None else (self._scratch.data_ptr(), self._scratch.shape[1])
        )
        self._step(
            rows.ctypes.data,
            len(rows),
            self._threads,
            scaler.ctypes.data,
            settings.ctypes.data,
            *scratch,
        )
