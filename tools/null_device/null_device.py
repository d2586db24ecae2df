"""The log of the null device, and stand-ins for cuDNN, each logged as one launch.

For scripts started by run.py.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Self

import torch
import torch.profiler
from torch import Tensor

_device = ctypes.CDLL(None)
_device.null_entry.restype = ctypes.c_char_p


@contextmanager
def record() -> Iterator[list[str]]:
    """Record the requests to the device in the block; the list is filled when the block ends.

    Entries start with launch, copy, fill, malloc or pin, or with wait if the host has to wait.
    During the capture of a CUDA graph, "captured" comes first; then nothing may wait, and no copy
    may be pageable.
    """
    entries: list[str] = []
    _device.null_log(True)
    try:
        yield entries
    finally:
        entries += take_entries()
        _device.null_log(False)


def take_entries() -> list[str]:
    """Return the entries of the block so far, and clear them."""
    entries = [_device.null_entry(i).decode() for i in range(_device.null_size())]
    _device.null_log(True)
    return entries


class Profile:
    """Stands in for torch.profiler.profile, which needs a GPU: each kernel takes a microsecond."""

    def __init__(self, activities: object = None):
        self._recording = record()

    def __enter__(self) -> Self:
        self._entries = self._recording.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._recording.__exit__(*error)

    def events(self) -> list[SimpleNamespace]:
        """Return the requests to the device."""
        kind = SimpleNamespace(name="CUDA")
        taken = SimpleNamespace(elapsed_us=lambda: 1.0)
        return [
            SimpleNamespace(name=entry, device_type=kind, time_range=taken)
            for entry in self._entries
            if entry.startswith(("launch", "copy", "fill"))
        ]


torch.profiler.profile = Profile


def launch(name: str) -> None:
    """Log a launch."""
    _device.null_note(f"launch {name}".encode())


def _make_like(x: Tensor, shape: tuple[int, ...], of: Tensor) -> Tensor:
    """Return an empty tensor of `shape` in the memory format of `of`."""
    nhwc = of.is_contiguous(memory_format=torch.channels_last)
    return torch.empty(
        shape,
        dtype=x.dtype,
        device=x.device,
        memory_format=torch.channels_last if nhwc else torch.contiguous_format,
    )


def _launch_convolution(x, weight, bias, stride, padding, dilation, *_):
    nhwc = x.is_contiguous(memory_format=torch.channels_last)
    launch(f"cudnn convolution {'NHWC' if nhwc else 'NCHW'} {x.dtype}")
    sizes = [
        (x.shape[2 + i] + 2 * padding[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i]
        + 1
        for i in range(2)
    ]
    y = _make_like(x, (x.shape[0], weight.shape[0], *sizes), x)
    return y if bias is None else y.add_(bias.view(-1, 1, 1))  # torch adds the bias separately


def _launch_convolution_backward(g, x, weight, *settings):
    *_, (wants_x, wants_weight, _) = settings
    if wants_x:
        launch("cudnn convolution dgrad")
    if wants_weight:
        launch("cudnn convolution wgrad")
    return (
        _make_like(x, x.shape, x) if wants_x else None,
        _make_like(weight, weight.shape, x) if wants_weight else None,
        None,
    )


def _launch_batch_norm(x, weight, *_):
    launch("cudnn batch norm")
    reserve = x.new_empty(16, dtype=torch.uint8)
    return _make_like(x, x.shape, x), torch.empty_like(weight), torch.empty_like(weight), reserve


def _launch_batch_norm_backward(x, g, weight, *_):
    launch("cudnn batch norm backward")
    return _make_like(x, x.shape, x), torch.empty_like(weight), torch.empty_like(weight)


_library = torch.library.Library("aten", "IMPL")
for _name, _stand_in in (
    ("convolution", _launch_convolution),
    ("convolution_backward", _launch_convolution_backward),
    ("cudnn_batch_norm", _launch_batch_norm),
    ("cudnn_batch_norm_backward", _launch_batch_norm_backward),
):
    _library.impl(_name, _stand_in, "CUDA")
