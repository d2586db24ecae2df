"""Find the native library, which installation builds if compiler and libjpeg-turbo are there.

It is used only if it decodes JPEGs whose pixels are known to the bit.
"""

import ctypes
import functools
import zlib
from pathlib import Path

import numpy as np

from resnet_recipes.data.native.rows import blank_rows

PATH = Path(__file__).with_name("libengine.so")
FOLDER = Path(__file__).with_name("known")

#: Left, top and side of the part of an image that is decoded, and the side that it gets.
WAYS = {
    "cropped": (31, 22, 33, 33),
    "whole": (0, 0, 69, 69),
    "reduced to 1/2": (0, 0, 68, 34),
    "reduced to 1/4 and cropped": (16, 24, 40, 10),
    "reduced to 1/8": (0, 0, 64, 8),
}

#: CRC-32 of the pixels of each file, in each of WAYS: the same for libjpeg-turbo 2.1.5 and 3.2.0,
#: with vector instructions and without, and for restart markers and scans that only change the
#: encoding.
_420 = (0xCC7B5BFF, 0xB5E0C12F, 0xD22F0027, 0x1900D0F6, 0x49D202CD)
PIXELS = {
    "420": _420,
    "restarts": _420,
    "progressive": _420,
    "422": (0x070D0BF6, 0x6F145865, 0x85FFCCE7, 0x46DF37EB, 0x7CABBD30),
    "444": (0xCF4EE709, 0x247ACC51, 0x2AF505D8, 0xD9526CED, 0xAD42FBA7),
    "grey": (0x9E039D16, 0x42D647B5, 0x97AC684B, 0xB24764A6, 0x8B29375C),
}


class UnavailableError(Exception):
    """The native library cannot be used; the message says why."""


def rows_of(files: list[np.ndarray], pixels: list[np.ndarray]) -> np.ndarray:
    """Return files x WAYS rows: what is decoded, and where to; both must stay alive."""
    rows = blank_rows(len(files) * len(WAYS)).reshape(len(files), len(WAYS))
    rows["data"] = [[file.ctypes.data] for file in files]
    rows["length"] = [[file.size] for file in files]
    left, top, rows["box"][..., 2], rows["side"] = np.array(list(WAYS.values())).T
    rows["box"][..., 0], rows["box"][..., 1], rows["box"][..., 3] = left, top, rows["box"][..., 2]
    rows["pixels"] = np.reshape([array.ctypes.data for array in pixels], rows.shape)
    return rows.ravel()


def mismatch(library: ctypes.CDLL) -> str:
    """Return what the library decodes wrongly; empty if everything is right.

    Takes 2 ms, without a thread.
    """
    files = [np.fromfile(FOLDER / f"{name}.jpg", np.uint8) for name in PIXELS]
    sides = [side for _ in files for *_, side in WAYS.values()]
    pixels = [np.zeros((side, side, 3), np.uint8) for side in sides]
    rows = rows_of(files, pixels)
    library.engine_try(rows.ctypes.data, len(rows))
    names = [f"{name} {way}" for name in PIXELS for way in WAYS]
    expected = [crc for file in PIXELS.values() for crc in file]
    found = [zlib.crc32(array) for array in pixels]
    wrong = [name for name, *crcs in zip(names, found, expected, strict=True) if len(set(crcs)) > 1]
    return f"gives wrong pixels ({wrong[0]}; {len(wrong)} of {len(names)} trials)" if wrong else ""


@functools.cache
def library(path: Path = PATH) -> ctypes.CDLL:
    """Load the library and try it on known JPEGs. Raises UnavailableError if it cannot be used."""
    if not path.exists():
        raise UnavailableError("was not built when resnet-recipes was installed")
    try:
        loaded = ctypes.CDLL(str(path))
        _declare(loaded)
        is_current = loaded.engine_row_bytes() == blank_rows(0).itemsize
    except OSError as error:
        raise UnavailableError(f"cannot be loaded: {error}") from None
    except AttributeError:  # a function is missing
        is_current = False
    if not is_current:
        raise UnavailableError("was built from other sources; install resnet-recipes again")
    if wrong := mismatch(loaded):
        raise UnavailableError(f"with {loaded.engine_jpeg().decode()} {wrong}")
    return loaded


def why_not() -> str:
    """Return why the native library cannot be used; empty if it can."""
    try:
        library()
    except UnavailableError as error:
        return str(error)
    return ""


def description() -> str:
    """Return a description of the instructions and libraries in use."""
    return (
        f"{library().engine_instructions().decode()} instructions, "
        f"{library().engine_jpeg().decode()}"
    )


def _declare(loaded: ctypes.CDLL) -> None:
    """Declare the signatures of src/engine.cpp to ctypes."""
    engine, ticket = ctypes.c_void_p, ctypes.c_int64
    for name, result, arguments in (
        ("engine_create", engine, [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]),
        ("engine_submit", ticket, [engine, ctypes.c_void_p, ctypes.c_int64]),
        ("engine_wait", ctypes.c_int, [engine, ticket, ctypes.c_double]),
        ("engine_destroy", None, [engine]),
        ("engine_try", None, [ctypes.c_void_p, ctypes.c_int64]),
        ("engine_row_bytes", ctypes.c_size_t, []),
        ("engine_instructions", ctypes.c_char_p, []),
        ("engine_jpeg", ctypes.c_char_p, []),
    ):
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
