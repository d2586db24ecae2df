"""Shrunk images as a source: decoded once, then kept in memory shared by all ranks."""

import mmap
import time

import numpy as np

from resnet_recipes.base.cores import get_available_memory
from resnet_recipes.data import native
from resnet_recipes.data.images.decode import Pixels
from resnet_recipes.data.images.python import Source
from resnet_recipes.data.images.shrink import compute_shrunk_size
from resnet_recipes.data.shared_arrays import SharedArrays, lock_name

#: Fraction of the available memory that images may fill. The rest is for batches, the page cache
#: and other programs.
USABLE_FRACTION = 0.8

#: Minimum bytes that images leave free.
MIN_RESERVE_BYTES = 1 << 30

#: Seconds between two checks for low memory; 96 cores fill less than 2 GB in this time.
CHECK_INTERVAL_SECONDS = 0.1

#: Indices in `counts`: bytes used, capacity in bytes, whether the memory is closed to new images,
#: and the available memory below which it is closed. The first three are `Memory` in
#: native/src/row.h; the last is read only here.
_USED, _CAPACITY, _CLOSED, _LEAST = range(4)


class ShrunkImages:
    """The images of another source, shrunk to a longer side of at most `longest`.

    An image is decoded completely and shrunk by area averaging. Its pixels depend only on the image
    and `longest`, and equal those of a raw .beton file with that `max_resolution`. With a `name`,
    pixels are kept in memory until it runs short, shared by all processes of this user with the
    same name. Other images are decoded every time, and so are those that Python decodes and crops.
    """

    is_mostly_jpeg = True  # the native decoder also crops images that only Python can decode

    def __init__(self, source: Source, longest: int, name: str):
        self.labels, self.path, self.fix = source.labels, source.path, source.fix
        self.mark_verified, self.can_skip = source.mark_verified, source.can_skip
        self._source, self._longest, self._name, self._arrays = source, longest, name, None
        self._checked_at = 0.0  # time of the last check of free memory
        if not name or native.find_decoder_fault():
            return
        largest = 3 * longest**2 * len(source)
        layout = {
            "counts": ("u8", (4,)),
            "entries": ("u8", (len(source),)),
            "kept": ("u1", (largest,)),
        }
        self._arrays = SharedArrays.open_named(name, **layout)
        counts = self._arrays["counts"]
        if not counts[_LEAST]:  # the memory was just created
            counts[_CAPACITY] = largest
            counts[_LEAST] = compute_reserve(get_available_memory())

    def __len__(self) -> int:
        return len(self._source)

    def read(self, index: int) -> Pixels:
        """Return image `index` from memory, or decode and shrink it; see Source."""
        if self._arrays is not None:
            row = native.make_blank_rows(1)
            self.locate(np.array([index]), row)
            if (pixels := native.read_shrunk(row)) is not None:
                return Pixels(pixels)
        picture = self._source.read(index)
        size = compute_shrunk_size(picture.height, picture.width, self._longest)
        return Pixels(picture.shrink(*size))

    def locate(self, indices: np.ndarray, decoder_rows: np.ndarray) -> None:
        """Point the native decoder's rows [n] to the images, and to their places in memory."""
        self._source.locate(indices, decoder_rows)
        decoder_rows["small"]["data"] = 0
        decoder_rows["longest"] = self._longest
        if self._arrays is None:
            return
        self._watch(self._arrays)
        counts, pixels, entries = (self._arrays[name] for name in ("counts", "kept", "entries"))
        decoder_rows["memory"], decoder_rows["kept"] = counts.ctypes.data, pixels.ctypes.data
        decoder_rows["entry"] = entries.ctypes.data + entries.itemsize * indices

    def _watch(self, arrays: SharedArrays) -> None:
        """Keep no more images if the system runs short of memory, and free some memory.

        The images that were added last are freed first; see native/src/memory.h.
        """
        counts = arrays["counts"]
        if time.monotonic() < self._checked_at + CHECK_INTERVAL_SECONDS:
            return
        self._checked_at = time.monotonic()
        left = get_available_memory()
        counts[_CLOSED] |= left < counts[_LEAST]
        if left >= counts[_LEAST] // 2:
            return
        with lock_name(self._name):
            lacking = int(counts[_LEAST]) - get_available_memory()
            if lacking > 0:  # otherwise another process has just freed memory
                end = int(min(counts[_USED], counts[_CAPACITY]))
                counts[_CAPACITY] = max(0, end - lacking) // mmap.PAGESIZE * mmap.PAGESIZE
                arrays.free("kept", int(counts[_CAPACITY]))


def compute_reserve(available: int) -> int:
    """Return how many bytes of the available memory images must leave free."""
    return max(MIN_RESERVE_BYTES, int((1 - USABLE_FRACTION) * available))
