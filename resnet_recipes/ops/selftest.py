"""Check that a fused operation compiles on a device and matches plain torch.

    python -m resnet_recipes.ops.selftest DEVICE DTYPE REFERENCE OPERATION ...

Prints a line for each operation, a JSON list of its name and the reason for its failure, or "", and
stops at the first failure.
"""

import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from resnet_recipes.base.text import get_first_line
from resnet_recipes.ops import MODULES
from resnet_recipes.ops.library import SampleCall

#: Why kernels cannot be compiled, with the commands for Debian and Red Hat that fix it.
_NO_COMPILER = "a C compiler is missing: apt install gcc or dnf install gcc"
_NO_HEADERS = "Python.h is missing: apt install python{0}-dev or dnf install python{0}-devel"


def find_missing_package() -> str:
    """Return which package is missing and how to install it, or ""."""
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return _NO_COMPILER
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return _NO_HEADERS.format(sysconfig.get_python_version())
    return ""


#: Relative difference of float32 sums that a different order of summation explains.
SUM_TOLERANCE = 1e-5


def find_mismatch(
    operation: ModuleType, device: torch.device, dtype: torch.dtype, reference: torch.device
) -> str:
    """Return why `operation.fused` cannot be used on `device`; "" if it can.

    On samples from `operation.make_samples`, compares outputs, gradients and updated statistics
    with `operation.unfused` in float32 on the device `reference`. Each may differ, relative to its
    norm, by the rounding error of its dtype.
    """
    generator = torch.Generator(device).manual_seed(0)
    # Triton launches on the current GPU, even if the tensors are elsewhere
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        try:
            for sample in operation.make_samples(generator, dtype):
                if why := _find_difference(operation, sample, dtype, reference):
                    return why
        # Triton may raise any exception (no compiler, an old device); plain torch still works
        except Exception as error:
            return find_missing_package() or f"{type(error).__name__}: {get_first_line(error)}"
    return ""


def _find_difference(
    operation: ModuleType, sample: SampleCall, dtype: torch.dtype, reference: torch.device
) -> str:
    """Return how the results for a sample differ from those on `reference`, or ""."""
    expected = _compute_results(
        operation.unfused, _copy(sample.arguments, reference, torch.float32), dtype
    )
    # copied, because the operation updates statistics
    results = _compute_results(operation.fused, _copy(sample.arguments), dtype)
    for result, exact in zip(results, expected, strict=True):
        allowed = _get_tolerance(dtype if sample.is_rounded else result.dtype)
        distance = _compute_distance(result, exact.to(result.device))
        if not distance <= allowed:
            name = "GPU" if reference.type == "cuda" else reference.type.upper()
            return (
                f"its {result.dtype} results differ from torch on the {name} "
                f"by {distance:.1e} of their norm; rounding explains {allowed:.1e}"
            )
    return ""


def _copy(value: Any, device: torch.device | None = None, dtype: torch.dtype | None = None) -> Any:
    """Return nested arguments with a copy of each tensor; in `dtype`, if it requires a gradient."""
    if isinstance(value, Tensor):
        copy = value.detach().to(device, dtype if value.requires_grad else None, copy=True)
        return copy.requires_grad_(value.requires_grad)
    if isinstance(value, tuple):
        copies = [_copy(item, device, dtype) for item in value]
        return type(value)(*copies) if hasattr(value, "_fields") else tuple(copies)
    return value


def _compute_results(function: Callable, arguments: tuple, dtype: torch.dtype) -> list[Tensor]:
    """Return outputs, gradients, and the tensors among the arguments that need no gradient."""
    outputs = function(*arguments)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    upstream = [
        torch.arange(y.numel()).add(i).cos().to(dtype).to(y.device, y.dtype).view(y.shape)
        for i, y in enumerate(outputs)
    ]
    tensors = list(_iterate_tensors(arguments))
    inputs = [tensor for tensor in tensors if tensor.requires_grad]
    # differentiate a sum: for gradients of tensors, torch imports sympy, which takes a second
    total = sum((y * g).sum() for y, g in zip(outputs, upstream, strict=True))
    gradients = torch.autograd.grad(total, inputs)
    others = [tensor for tensor in tensors if not tensor.requires_grad]
    return [*(y.detach() for y in outputs), *gradients, *others]


def _iterate_tensors(arguments: Iterable[object]) -> Iterator[Tensor]:
    for value in arguments:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from _iterate_tensors(value)


def _get_tolerance(dtype: torch.dtype) -> float:
    """Return the relative error explained by rounding to a dtype."""
    return max(torch.finfo(dtype).eps, SUM_TOLERANCE) if dtype.is_floating_point else 0.0


def _compute_distance(actual: Tensor, expected: Tensor) -> float:
    """Return the distance between two tensors, relative to the norm of `expected`."""
    actual = actual.double()
    expected = expected.double()
    return float((actual - expected).norm() / expected.norm().clamp(min=1e-20))


def main() -> None:
    """Test operations until one fails, since its kernel may break this process's GPU context."""
    place, dtype, reference, *names = sys.argv[1:]
    devices = torch.device(place), getattr(torch, dtype), torch.device(reference)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as lines:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # redirect library output to stderr
        for name in names:
            why = find_mismatch(MODULES[name], *devices)
            lines.write(f"{json.dumps([name, why])}\n")
            lines.flush()
            if why:
                break


if __name__ == "__main__":
    main()
