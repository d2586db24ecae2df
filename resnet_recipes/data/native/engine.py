"""The C++ engine, which fills rows of batches without the interpreter."""

import numpy as np

from resnet_recipes.data.native.library import library
from resnet_recipes.data.native.rows import ROW


def fill(rows: np.ndarray, reading: np.ndarray, scalar: bool = False) -> np.ndarray:
    """Fill ROW [N] one after the other in this thread, and return the positions of refused rows, int64 [n].

    Other threads run meanwhile, and `reading`, bool [N], shows which row is being read. `scalar` avoids vector
    instructions.
    """
    assert rows.dtype == ROW
    assert reading.dtype == bool
    assert len(rows) == len(reading)
    assert rows.flags.c_contiguous
    assert reading.flags.c_contiguous
    library().engine_fill(rows.ctypes.data, len(rows), reading.ctypes.data, scalar)
    return np.flatnonzero(rows["status"])
