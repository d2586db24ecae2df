"""Decode, crop, resize and mirror samples of a .beton file with FFCV's own native code, compiled to run without the interpreter.

FFCV's Python around that code is not used: it ignores the decoder's return code and so hands out another image's pixels, draws crops from
generators that nobody seeds, and waits forever for a thread that has failed (ffcv 1.0.2, fields/rgb_image.py, loader/epoch_iterator.py).
"""

import functools
from collections.abc import Callable

import numpy as np
import torch

from resnet_recipes.data.beton import JPEG
from resnet_recipes.data.jpeg_header import frame_size
from resnet_recipes.errors import NotReadyError, Problem

#: What `decode` says about the sample at which it stopped.
COMPLAINTS = {1: "its JPEG has no start, no end, or another size than the file says", 2: "its JPEG is damaged"}


@functools.cache
def ffcv_native() -> tuple[Callable, Callable]:
    """Return FFCV's JPEG decoder and its resize; raises NotReadyError where FFCV is not installed. Importing it takes about a second."""
    threads = torch.get_num_threads()
    try:
        from ffcv.libffcv import ctypes_imdecode, ctypes_resize
    except (ImportError, OSError) as error:
        rule = f"cannot be used, because ffcv does not import ({error})"
        raise NotReadyError([Problem("data.backend", "ffcv", rule, "resnet-recipes doctor ffcv   says what is missing")]) from error
    finally:
        torch.set_num_threads(threads)       # importing ffcv sets it to one
    return ctypes_imdecode, ctypes_resize


@functools.cache
def compiled_decode() -> Callable:
    """Return `decode(content, samples, crops, mirrored, scratch, out)`, compiled once a process, for all image sizes; about 3 seconds.

    Decodes samples one after the other into `out`, uint8 [N, side, side, 3]. `samples` is int64 [N, 5] (start, length, mode, height, width),
    `crops` int64 [N, 4] (top, left, height, width), `mirrored` bool [N], `scratch` uint8 for the largest JPEG. Returns the place of the first
    sample that is wrong and what is wrong with it (a key of COMPLAINTS), or (-1, 0). Holds no lock, so several threads may call it at once.
    """
    import numba

    imdecode, resize = ffcv_native()
    frame_size_ = numba.njit(nogil=True)(frame_size)

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
                if imdecode(data.ctypes.data, length, height, width, pixels, height, width, 0, 0, 1, 1, False, False) != 0:
                    return place, 2
            top, left, crop_height, crop_width = crops[place]
            image = out[place]
            side = image.shape[0]
            resize(0, pixels, height, width, top, top + crop_height, left, left + crop_width, image.ctypes.data, side, side)
            if mirrored[place]:
                for row in range(side):
                    for column in range(side // 2):
                        for channel in range(3):
                            kept = image[row, column, channel]
                            image[row, column, channel] = image[row, side - 1 - column, channel]
                            image[row, side - 1 - column, channel] = kept
        return -1, 0

    u8 = numba.types.Array(numba.uint8, 1, "C", readonly=True)
    signature = numba.types.UniTuple(numba.int64, 2)(
        u8, numba.int64[:, ::1], numba.int64[:, ::1], numba.boolean[::1], numba.uint8[::1], numba.uint8[:, :, :, ::1]
    )
    return numba.njit(signature, nogil=True)(decode)
