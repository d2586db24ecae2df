"""Register operations with torch, under `torch.ops.resnet_recipes`."""

from collections.abc import Callable

import torch
from torch import Tensor

_library = torch.library.Library("resnet_recipes", "FRAGMENT")


def register(schema: str, cpu: Callable, cuda: Callable, fake: Callable) -> None:
    """Register an operation: one implementation per device.

    `fake` gives the shapes and strides of its outputs.
    """
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, cpu, "CPU")
    _library.impl(name, cuda, "CUDA")
    torch.library.register_fake(f"resnet_recipes::{name}", fake, lib=_library)


def nhwc(x: Tensor) -> Tensor:
    """Return [N, C, H, W] in channels_last memory.

    Free if it already is, which is the usual case.
    """
    return x.contiguous(memory_format=torch.channels_last)
