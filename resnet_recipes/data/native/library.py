"""Find the native library, which is built on installation if a compiler and libjpeg-turbo are available."""

import ctypes
import functools
from pathlib import Path

from resnet_recipes.data.native.rows import ROW

PATH = Path(__file__).with_name("libengine.so")


class UnavailableError(Exception):
    """The native library cannot be used; the message says why."""


@functools.cache
def library(path: Path = PATH) -> ctypes.CDLL:
    """Load the library. Raises UnavailableError if it was not built or cannot be loaded."""
    if not path.exists():
        raise UnavailableError("was not built when resnet-recipes was installed")
    try:
        loaded = ctypes.CDLL(str(path))
        row_bytes = loaded.engine_row_bytes()
        loaded.engine_fill.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int]
        loaded.engine_fill.restype = None
        loaded.engine_instructions.restype = loaded.engine_jpeg.restype = ctypes.c_char_p
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"cannot be loaded: {error}") from None
    if row_bytes != ROW.itemsize:
        raise UnavailableError("was built from other sources; install resnet-recipes again")
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
    return f"{library().engine_instructions().decode()} instructions, {library().engine_jpeg().decode()}"
