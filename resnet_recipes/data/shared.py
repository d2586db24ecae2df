"""Arrays shared by several processes."""

import mmap
import os
from multiprocessing import reduction

import numpy as np
import numpy.typing as npt

#: Dtype and shape of arrays, by name.
Layout = dict[str, tuple[npt.DTypeLike, tuple[int, ...]]]


class SharedArrays:
    """Named arrays in one anonymous memory file, passed to child processes by its descriptor.

    Because the file has no name, a killed run leaves nothing behind. It does not count against
    /dev/shm either, so containers can keep their 64 MB default.
    """

    def __init__(self, **layout: tuple[npt.DTypeLike, tuple[int, ...]]):
        """Allocate zeros; `layout` gives each array's dtype and shape."""
        self.layout, descriptor = layout, os.memfd_create("resnet-recipes")
        os.ftruncate(descriptor, layout_bytes(layout))
        self._attach(descriptor)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    @property
    def whole(self) -> np.ndarray:
        """The whole file as bytes, for pinning."""
        return np.frombuffer(self._memory, np.uint8)

    def _attach(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, layout_bytes(self.layout))
        self._descriptor = descriptor
        self.arrays, at = {}, 0
        for name, (dtype, shape) in self.layout.items():
            self.arrays[name] = np.frombuffer(self._memory, dtype, int(np.prod(shape)), at).reshape(
                shape
            )
            at += _array_bytes(dtype, shape)

    def __del__(self):
        if hasattr(self, "_descriptor"):
            # the memory itself is freed with the last array that uses it
            os.close(self._descriptor)

    def __getstate__(self) -> tuple:
        return self.layout, reduction.DupFd(self._descriptor)

    def __setstate__(self, state: tuple) -> None:
        self.layout, descriptor = state
        self._attach(descriptor.detach())


def layout_bytes(layout: Layout) -> int:
    """Return the bytes of all arrays."""
    return sum(_array_bytes(dtype, shape) for dtype, shape in layout.values())


def _array_bytes(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> int:
    """Return the bytes of one array, in whole pages so that every array starts aligned."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return max(1, -(-size // mmap.PAGESIZE)) * mmap.PAGESIZE
