"""Arrays shared by several processes."""

import errno
import glob
import mmap
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import reduction
from typing import Self

import numpy as np
import numpy.typing as npt

#: Dtype and shape of arrays, by name.
Layout = dict[str, tuple[npt.DTypeLike, tuple[int, ...]]]


class SharedArrays:
    """Named arrays in one anonymous memory file, passed to child processes by its descriptor.

    Because the file has no path, a killed run leaves nothing behind. It also does not count against
    /dev/shm, so containers can keep their 64 MB default.
    """

    def __init__(self, **layout: tuple[npt.DTypeLike, tuple[int, ...]]):
        """Allocate zeros; `layout` gives each array's dtype and shape."""
        self.layout = layout
        descriptor = os.memfd_create("resnet-recipes")
        os.ftruncate(descriptor, count_layout_bytes(layout))
        self._attach(descriptor)

    @classmethod
    def open_named(cls, name: str, **layout: tuple[npt.DTypeLike, tuple[int, ...]]) -> Self:
        """Return the arrays that another process of this user has under this name, or new arrays.

        They last until the last of these processes ends. Pages take memory only once they are
        written, so the layout may be larger than the memory.
        """
        shared = cls.__new__(cls)
        shared.layout = layout
        size = count_layout_bytes(layout)
        with lock_name(name):
            if (descriptor := _open_existing(name, size)) is None:
                descriptor = os.memfd_create(name)
                os.ftruncate(descriptor, size)
            shared._attach(descriptor)
        for advice in (mmap.MADV_HUGEPAGE, mmap.MADV_DONTDUMP):
            with suppress(OSError):  # not supported on all systems
                shared._memory.madvise(advice)
        return shared

    def free(self, name: str, start: int) -> None:
        """Free the last array from byte `start`, a multiple of a page; its bytes become 0."""
        offset = self.arrays[name].ctypes.data - self.content.ctypes.data
        self._memory.madvise(mmap.MADV_REMOVE, offset + start)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    @property
    def content(self) -> np.ndarray:
        """The complete file as bytes, for pinning."""
        return np.frombuffer(self._memory, np.uint8)

    def _attach(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, count_layout_bytes(self.layout))
        self._descriptor = descriptor
        self.arrays, offset = {}, 0
        for name, (dtype, shape) in self.layout.items():
            self.arrays[name] = np.frombuffer(
                self._memory, dtype, int(np.prod(shape)), offset
            ).reshape(shape)
            offset += _count_array_bytes(dtype, shape)

    def __del__(self):
        if hasattr(self, "_descriptor"):
            # the memory is freed with the last array that uses it
            os.close(self._descriptor)

    def __getstate__(self) -> tuple:
        return self.layout, reduction.DupFd(self._descriptor)

    def __setstate__(self, state: tuple) -> None:
        self.layout, descriptor = state
        self._attach(descriptor.detach())


def count_layout_bytes(layout: Layout) -> int:
    """Return the bytes of all arrays."""
    return sum(_count_array_bytes(dtype, shape) for dtype, shape in layout.values())


def _count_array_bytes(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> int:
    """Return the bytes of one array, in complete pages so that every array starts aligned."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return max(1, -(-size // mmap.PAGESIZE)) * mmap.PAGESIZE


@contextmanager
def lock_name(name: str) -> Iterator[None]:
    """Lock a name: only one process on this machine at a time can look it up."""
    with socket.socket(socket.AF_UNIX) as lock:
        while True:
            try:
                lock.bind(f"\0{name}")
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                time.sleep(0.01)
        yield


def _open_existing(name: str, size: int) -> int | None:
    """Return a descriptor of the memory file with this name in a process of this user."""
    for link in glob.iglob("/proc/[0-9]*/fd/*"):
        with suppress(OSError):  # the process belongs to another user, or has ended
            if os.readlink(link) == f"/memfd:{name} (deleted)":
                descriptor = os.open(link, os.O_RDWR | os.O_CLOEXEC)
                status = os.fstat(descriptor)
                if (status.st_uid, status.st_size) == (os.geteuid(), size):
                    return descriptor
                os.close(descriptor)
    return None
