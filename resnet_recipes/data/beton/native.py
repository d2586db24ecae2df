"""Decode, crop, resize and mirror samples of a .beton file with FFCV's own native code, without the interpreter.

FFCV's Python around that code is not used: it ignores the decoder's return code and so hands out another image's
pixels, draws crops from generators that are never seeded, and waits forever for a thread that has failed (ffcv 1.0.2,
fields/rgb_image.py, loader/epoch_iterator.py).
"""

import ctypes
import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np

from resnet_recipes.data.beton.file import JPEG
from resnet_recipes.data.beton.jpeg_header import frame_size
from resnet_recipes.errors import NotReadyError, Problem

#: What `decode` says about the sample at which it stopped.
COMPLAINTS = {1: "its JPEG has no start, no end, or another size than the file says", 2: "its JPEG is damaged"}


@functools.cache
def ffcv_native() -> ctypes.CDLL:
    """Load FFCV's compiled library; raises NotReadyError where that cannot be done.

    The package around it is not imported: that takes five seconds and sets torch to one thread.
    """
    package = importlib.util.find_spec("ffcv")
    libraries = sorted(Path(package.submodule_search_locations[0]).glob("_libffcv*.so")) if package else []
    try:
        if not libraries or not importlib.util.find_spec("numba"):
            raise OSError("it is not installed" if not package else "its compiled part, or numba, is missing")
        library = ctypes.CDLL(str(libraries[0]))
        library.resize.argtypes = [ctypes.c_int64] * 11
        library.resize.restype = None
        u32 = ctypes.c_uint32
        source, target = [ctypes.c_void_p, ctypes.c_uint64, u32, u32], [ctypes.c_void_p, u32, u32]
        library.imdecode.argtypes = [*source, *target, u32, u32, u32, u32, ctypes.c_bool, ctypes.c_bool]
    except (OSError, AttributeError) as error:
        fix = "resnet-recipes doctor ffcv   says what is missing;   data.backend=torchvision does without"
        raise NotReadyError([Problem("data.backend", "ffcv", f"cannot be used: {error}", fix)]) from error
    return library


@functools.cache
def compiled_decode() -> Callable:
    """Return `decode(content, samples, crops, mirrored, scratch, out)`, compiled once a process, in a second.

    It decodes samples one after the other into `out`, uint8 [N, side, side, 3]. `samples` is int64 [N, 5] (start,
    length, mode, height, width), `crops` int64 [N, 4] (top, left, height, width), `mirrored` bool [N], `scratch` uint8,
    room for the largest JPEG. It returns the place of the first sample that is wrong and what is wrong with it (a key
    of COMPLAINTS), or (-1, 0). It holds no lock, so several threads may call it at once.
    """
    import numba

    imdecode, resize = ffcv_native().imdecode, ffcv_native().resize
    frame_size_, mirror = numba.njit(nogil=True)(frame_size), numba.njit(nogil=True)(_mirror)

    def decode(content, samples, crops, mirrored, scratch, out):
        for place in range(len(samples)):
            start, length, mode, height, width = samples[place]
            data = content[start : start + length]
            pixels = data.ctypes.data
            if mode == JPEG:
                frame_height, frame_width, _ = frame_size_(data)
                if frame_height != height or frame_width != width:
                    return place, 1
                pixels = scratch.ctypes.data
                if imdecode(data.ctypes.data, length, height, width, pixels, height, width, 0, 0, 1, 1, False,
                            False) != 0:
                    return place, 2
            top, left, crop_height, crop_width = crops[place]
            image = out[place]
            side = image.shape[0]
            resize(0, pixels, height, width, top, top + crop_height, left, left + crop_width, image.ctypes.data, side,
                   side)
            if mirrored[place]:
                mirror(image)
        return -1, 0

    u8 = numba.types.Array(numba.uint8, 1, "C", readonly=True)
    signature = numba.types.UniTuple(numba.int64, 2)(
        u8, numba.int64[:, ::1], numba.int64[:, ::1], numba.boolean[::1], numba.uint8[::1], numba.uint8[:, :, :, ::1]
    )
    return numba.njit(signature, nogil=True)(decode)


def _mirror(image: np.ndarray) -> None:
    """Swap left and right in place; uint8 [H, W, 3]."""
    last = image.shape[1] - 1
    for row in range(image.shape[0]):
        for column in range(image.shape[1] // 2):
            for channel in range(3):
                kept = image[row, column, channel]
                image[row, column, channel] = image[row, last - column, channel]
                image[row, last - column, channel] = kept
