"""Decode rows with a library, in a process of its own: python decode.py LIBRARY JOB.

JOB.npz has the rows, and the bytes of their images one after the other. Prints which libjpeg-turbo
is used, and the CRC-32 of the pixels of each row.
"""

import ctypes
import sys
import zlib

import numpy as np


def main(path: str, job: str) -> None:
    """Load the library without the package, which would import torch."""
    library, loaded = ctypes.CDLL(path), np.load(job)
    library.engine_jpeg.restype = ctypes.c_char_p
    rows, images = loaded["rows"], loaded["images"]
    pixels = [np.zeros((side, side, 3), np.uint8) for side in rows["side"]]
    rows["data"] = images.ctypes.data + np.cumsum(rows["length"]) - rows["length"]
    rows["pixels"] = [array.ctypes.data for array in pixels]
    library.engine_try(ctypes.c_void_p(rows.ctypes.data), ctypes.c_int64(len(rows)))
    print(library.engine_jpeg().decode())
    print(*(zlib.crc32(array) for array in pixels))


if __name__ == "__main__":
    main(*sys.argv[1:])
