"""Check that a fused operation compiles on a device and agrees with plain torch."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from types import ModuleType

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only


def fault(
    operation: ModuleType, device: torch.device, dtype: torch.dtype, reference: torch.device
) -> str:
    """Return why `operation.fused` cannot be used on `device`, or an empty string if it can.

    Compares its outputs and gradients on `operation.samples` with those of `operation.plain` in
    float32 on the device `reference`. They may differ, relative to their norm, by as much as
    rounding to `dtype` explains.
    """
    allowed = max(torch.finfo(dtype).eps, getattr(operation, "TOLERANCE", 1e-5))
    generator = torch.Generator(device).manual_seed(0)
    # Triton launches on the current GPU, wherever the tensors are
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        try:
            for tensors, others in operation.samples(generator, dtype):
                there = tree_map_only(Tensor, lambda tensor: tensor.to(reference), others)
                expected = _results(
                    operation.plain, [t.to(reference, torch.float32) for t in tensors], there, dtype
                )
                found = _results(operation.fused, tensors, others, dtype)
                error = max(
                    _distance(a, b.to(device)) for a, b in zip(found, expected, strict=True)
                )
                if not error <= allowed:
                    return (
                        "its results differ from torch's on the "
                        f"{reference.type.upper().replace('CUDA', 'GPU')} "
                        f"by {error:.1e} of their norm; {dtype} explains {allowed:.1e}"
                    )
        # whatever it is (no compiler, a device too old), plain torch still works
        except Exception as error:
            why = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
            return f"{type(error).__name__}: {why}"
    return ""


def _results(
    function: Callable[..., Tensor | tuple[Tensor, ...]],
    tensors: Iterable[Tensor],
    others: list,
    dtype: torch.dtype,
) -> list[Tensor]:
    """Return the output of `function`, the gradients of its tensors, and the tensors passed to it besides."""
    inputs = [tensor.detach().requires_grad_() for tensor in tensors]
    others = tree_map_only(Tensor, Tensor.clone, others)
    outputs = function(*inputs, *others)
    outputs = outputs if isinstance(outputs, tuple) else () if outputs is None else (outputs,)
    upstream = [
        torch.arange(y.numel()).add(i).cos().to(dtype).to(y.device, y.dtype).view(y.shape)
        for i, y in enumerate(outputs)
    ]
    changed = [leaf for leaf in tree_leaves(others) if isinstance(leaf, Tensor)]
    # of a sum: for gradients of tensors torch loads sympy, which takes a second
    total = sum((y * g).sum() for y, g in zip(outputs, upstream, strict=True)) if inputs else None
    gradients = torch.autograd.grad(total, inputs) if inputs else ()
    return [*(y.detach() for y in outputs), *gradients, *changed]


def _distance(found: Tensor, expected: Tensor) -> float:
    """Return the distance between `found` and `expected`, relative to the norm of `expected`."""
    return float(
        (found.float() - expected.float()).norm() / expected.float().norm().clamp(min=1e-20)
    )
