"""Avoid operations whose gradients torch computes wrongly."""

from collections.abc import Callable, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


def avoid_wrong_gradients(forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a network's forward pass with changed arguments of some operations.

    On CPUs with AVX-512, torch 2.11 to 2.15 have bugs in two kinds of convolutions (oneDNN). First,
    if an output is 1 px wide or high, weights that only meet padding have gradient 0. With stride 2
    in bf16, torch can return uninitialized memory. These weights are omitted: a 3x3 convolution of
    1x1 px uses only the center of its weights. Second, the gradient of 1x1 convolutions with a
    stride and fewer than 16 channels, in fp32 and channels_last, writes out of bounds from about 56
    px. These convolutions subsample their input first.

    On GPUs, torch until summer 2026 returns wrong gradients of average pools with padding in
    channels_last (pytorch/pytorch#188344). These pools get their input in NCHW.
    """

    def compute(images: Tensor) -> Tensor:
        with _ArgumentChanges():  # inside the compiled function
            return forward(images)

    return compute


class _ArgumentChanges(TorchFunctionMode):
    """Changes the arguments of convolutions and average pools."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a torch function."""
        if function not in _CHANGES:
            return function(*args, **(kwargs or {}))
        names, changed = _CHANGES[function]
        return function(**changed(dict(zip(names, args, strict=False)) | dict(kwargs or {})))


def _change_convolution(arguments: dict[str, Any]) -> dict[str, Any]:
    images = arguments["input"]
    weight = arguments["weight"]
    strides = _pair(arguments.get("stride", 1))
    padding = _pair(arguments.get("padding", 0))
    is_odd = isinstance(padding, str) or arguments.get("dilation", 1) not in (1, (1, 1))
    if is_odd or images.device.type != "cpu":
        return arguments  # torch uses another implementation, which is correct
    if weight.shape[1] < 16 and weight.shape[2:] == (1, 1) and padding == (0, 0):
        return arguments | {"input": images[..., :: strides[0], :: strides[1]], "stride": 1}
    for axis, stride in zip((-2, -1), strides, strict=True):
        size = images.shape[axis]
        taps = weight.shape[axis]
        beyond = padding[axis]
        if 0 < beyond < taps and size + 2 * beyond < taps + stride:
            used = min(size, taps - beyond)
            images = images.narrow(axis, 0, used)
            weight = weight.narrow(axis, beyond, used)
            padding = (0, padding[1]) if axis == -2 else (padding[0], 0)
    return arguments | {"input": images, "weight": weight, "padding": padding}


def _change_pool(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments for the same average pool with the right gradient."""
    is_padded = _pair(arguments.get("padding", 0)) != (0, 0)
    return arguments | {"input": arguments["input"].contiguous()} if is_padded else arguments


def _pair(value: Any) -> Any:
    return (value, value) if isinstance(value, int) else value


#: Argument names of each torch function, and the function that changes them.
_CHANGES = {
    F.conv2d: (
        ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
        _change_convolution,
    ),
    F.avg_pool2d: (
        (
            "input",
            "kernel_size",
            "stride",
            "padding",
            "ceil_mode",
            "count_include_pad",
            "divisor_override",
        ),
        _change_pool,
    ),
}
