"""Convolutions on a CPU in bf16 whose weights partly meet nothing but padding."""

from collections.abc import Callable, Mapping
from typing import Any

import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

_NAMES = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")  # of F.conv2d


class Trimmed(TorchFunctionMode):
    """While it is entered, convolutions leave out weights that meet nothing but padding.

    It does so where an output is 1 px wide or high: a 3x3 convolution of 1 x 1 px uses the middle
    of its weights. The rest have gradient 0, but with stride 2 and in bf16, torch 2.11 to 2.15 on
    a CPU with AVX-512 return what lay in memory (oneDNN).
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch."""
        given = dict(kwargs or {})
        if function is F.conv2d:
            args, given = (), _trimmed(dict(zip(_NAMES, args, strict=False)) | given)
        return function(*args, **given)


def _trimmed(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the same convolution, without these weights."""
    images, weight = given["input"], given["weight"]
    strides, padding = _pair(given.get("stride", 1)), _pair(given.get("padding", 0))
    if isinstance(padding, str) or given.get("dilation", 1) not in (1, (1, 1)):
        return given  # torch computes these in another way, which is right
    for axis, stride in zip((-2, -1), strides, strict=True):
        side, taps, beyond = images.shape[axis], weight.shape[axis], padding[axis]
        if 0 < beyond < taps and side + 2 * beyond < taps + stride:
            met = min(side, taps - beyond)
            images, weight = images.narrow(axis, 0, met), weight.narrow(axis, beyond, met)
            padding = (0, padding[1]) if axis == -2 else (padding[0], 0)
    return given | {"input": images, "weight": weight, "padding": padding}


def _pair(value: Any) -> Any:
    return (value, value) if isinstance(value, int) else value
