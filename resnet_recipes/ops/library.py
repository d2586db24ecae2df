"""Register operations in `torch.ops.resnet_recipes`, and create samples to test them."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

_library = torch.library.Library("resnet_recipes", "FRAGMENT")


def register(schema: str, cuda: Callable, fake: Callable) -> None:
    """Register an operation for GPUs; tests register the CPU implementation.

    `fake` returns outputs with the right shapes and strides but without values.
    """
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, cuda, "CUDA")
    torch.library.register_fake(f"resnet_recipes::{name}", fake, lib=_library)


def to_nhwc(x: Tensor) -> Tensor:
    """Return [N, C, H, W] in channels_last memory.

    Copies nothing if `x` already uses that memory format, which is the usual case.
    """
    return x.contiguous(memory_format=torch.channels_last)


class SampleCall(NamedTuple):
    """Arguments of an operation: tensors, nested tuples of tensors, and other values.

    Some of the tensors require gradients.
    """

    arguments: tuple[object, ...]
    is_rounded: bool = False  # whether float32 gradients are sums of gradients rounded to the dtype


SampleCalls = Iterator[SampleCall]


def sample_normal(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    """Return normally distributed numbers on the generator's device."""
    return torch.randn(shape, generator=generator, device=generator.device)


def sample_windows(generator: torch.Generator, dtype: torch.dtype) -> SampleCalls:
    """Yield arguments of an operation on 3x3 pixels that reach every kernel.

    They have both strides, odd and even sizes, and partial tiles.
    """
    for stride, height, width in ((1, 5, 9), (2, 9, 4), (2, 2, 17)):
        x = to_nhwc(sample_normal(generator, (1, 64, height, width)).to(dtype))
        yield SampleCall((x.requires_grad_(), stride))


def make_output(x: Tensor, stride: int) -> Tensor:
    """Return a tensor without values for the output of an operation on 3x3 pixels."""
    height, width = ((size - 1) // stride + 1 for size in x.shape[2:])
    return to_nhwc(x.new_empty(*x.shape[:2], height, width))


def make_gradient(g: Tensor, *rest: Any) -> Tensor:
    """Return a tensor without values for its input gradient; `rest` ends with height and width."""
    return to_nhwc(g.new_empty(*g.shape[:2], *rest[-2:]))
