"""Find the native library, which installation builds if compiler and libjpeg-turbo are there."""

import ctypes
import functools
from pathlib import Path

from resnet_recipes.data.native.known import mismatch
from resnet_recipes.data.native.rows import blank_rows

PATH = Path(__file__).with_name("libengine.so")


class UnavailableError(Exception):
    """The native library cannot be used; the message says why."""


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
