"""Tensors that are read by address, together with a weight.

Their values must be in the same order in memory.
"""

import torch
from torch import Tensor

ALIGNMENT = 16  # bytes; a GPU moves as many at a time


def matched(weights: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    """Return each gradient in the memory format of its dense weight.

    A copy, if it is in another one or not aligned.
    """
    return [
        grad
        if _fits(grad, weight) and grad.data_ptr() % ALIGNMENT == 0
        else torch.empty_like(weight).copy_(grad)
        for grad, weight in zip(grads, weights, strict=True)
    ]


def require(weights: list[Tensor], states: dict[str, list[Tensor]]) -> None:
    """Raise RuntimeError unless each state of a dense weight has its dtype, shape and memory format."""
    for name, tensors in states.items():
        if not all(map(_fits, tensors, weights)):
            raise RuntimeError(
                f"{name}: stored in another shape or memory format than its parameter"
            )


def _fits(tensor: Tensor, weight: Tensor) -> bool:
    if tensor.shape != weight.shape or tensor.dtype != weight.dtype:
        return False
    ours, theirs = tensor.stride(), weight.stride()
    return ours == theirs or all(
        size == 1 or a == b for size, a, b in zip(weight.shape, ours, theirs, strict=True)
    )
