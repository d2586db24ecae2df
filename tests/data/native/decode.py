"""Decode rows with a library in a separate process: python decode.py LIBRARY JOB.

JOB.npz contains the rows and the concatenated bytes of their images. Prints the libjpeg-turbo in
use, and the CRC-32 of the pixels of each row.
"""

import ctypes
import sys
import zlib

import numpy as np


def main(path: str, job: str) -> None:
    """Load the library without the package, which would import torch."""
    library = ctypes.CDLL(path)
    loaded = np.load(job)
    library.engine_jpeg.restype = ctypes.c_char_p
    rows = loaded["rows"]
    images = loaded["images"]
    pixels = [np.zeros((side, side, 3), np.uint8) for side in rows["output_size"]]
    rows["data"] = images.ctypes.data + np.cumsum(rows["length"]) - rows["length"]
    rows["pixels"] = [array.ctypes.data for array in pixels]
    library.engine_try(ctypes.c_void_p(rows.ctypes.data), ctypes.c_int64(len(rows)))
    print(library.engine_jpeg().decode())
    print(*(zlib.crc32(array) for array in pixels))


if __name__ == "__main__":
    main(*sys.argv[1:])
