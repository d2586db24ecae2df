"""Arguments on which an operation is tried before it is used."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Sample(NamedTuple):
    """Arguments of an operation: tensors, nested tuples of them, and anything else.

    Some of the tensors require gradients.
    """

    arguments: tuple[object, ...]
    is_rounded: bool = False  # whether float32 gradients are sums of others, rounded to the dtype


Samples = Iterator[Sample]


def draw(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    """Return normally distributed numbers on the generator's device."""
    return torch.randn(shape, generator=generator, device=generator.device)
