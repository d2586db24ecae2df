"""The native decoder, in C++: crops of JPEGs and .beton samples, without the interpreter.

Installation builds the library if a compiler and libjpeg-turbo are available. The library is used
only if it decodes a few JPEGs bit-identically to known pixels.
"""

import ctypes
import functools
import os
import zlib
from pathlib import Path

import numpy as np

from resnet_recipes.data.native.rows import WHOLE, Status, describe_layout, make_blank_rows

PATH = Path(__file__).with_name("libengine.so")
FOLDER = Path(__file__).with_name("known")

#: Left, top and size of the decoded part of an image, and the size of the result.
WAYS = {
    "cropped": (31, 22, 33, 33),
    "whole": (0, 0, 69, 69),
    "reduced to 1/2": (0, 0, 68, 34),
    "reduced to 1/4 and cropped": (16, 24, 40, 10),
    "reduced to 1/8": (0, 0, 64, 8),
}

#: CRC-32 of the pixels of each file, for each of WAYS: identical for libjpeg-turbo 2.1.5 and 3.2.0,
#: with and without vector instructions, and for restart markers and scans that only change the
#: encoding.
_420 = (0xCC7B5BFF, 0xB5E0C12F, 0xD22F0027, 0x1900D0F6, 0x49D202CD)
PIXELS = {
    "420": _420,
    "restarts": _420,
    "progressive": _420,
    "422": (0x070D0BF6, 0x6F145865, 0x85FFCCE7, 0x46DF37EB, 0x7CABBD30),
    "444": (0xCF4EE709, 0x247ACC51, 0x2AF505D8, 0xD9526CED, 0xAD42FBA7),
    "gray": (0x9E039D16, 0x42D647B5, 0x97AC684B, 0xB24764A6, 0x8B29375C),
}


class UnavailableError(Exception):
    """The native library cannot be used; the message is the reason."""


def find_mismatch(library: ctypes.CDLL) -> str:
    """Return which known images the library decodes wrongly, or "". Takes 2 ms."""
    wrong = []
    for name, checksums in PIXELS.items():
        file = np.fromfile(FOLDER / f"{name}.jpg", np.uint8)
        for (way, (left, top, size, side)), checksum in zip(WAYS.items(), checksums, strict=True):
            row = make_blank_rows(1)
            pixels = np.zeros((side, side, 3), np.uint8)
            row["data"], row["length"], row["output_size"] = file.ctypes.data, file.size, side
            row["box"] = (left, top, size, size)
            row["pixels"] = pixels.ctypes.data
            library.engine_try(row.ctypes.data, 1)
            if zlib.crc32(pixels.data) != checksum:
                wrong.append(f"{name} {way}")
    trials = len(PIXELS) * len(WAYS)
    return f"decodes wrong pixels ({wrong[0]}; {len(wrong)} of {trials} trials)" if wrong else ""


@functools.cache
def load_library(path: Path = PATH) -> ctypes.CDLL:
    """Load the library and test it on known JPEGs. Raises UnavailableError if it cannot be used."""
    if not path.exists():
        raise UnavailableError("was not built when resnet-recipes was installed")
    try:
        loaded = ctypes.CDLL(str(path))
        _declare(loaded)
        is_current = loaded.engine_layout().decode() == describe_layout()
    except OSError as error:
        raise UnavailableError(f"cannot be loaded: {error}") from None
    except AttributeError:  # a function is missing
        is_current = False
    if not is_current:
        raise UnavailableError("was built from other sources; reinstall resnet-recipes")
    if wrong := find_mismatch(loaded):
        raise UnavailableError(f"with {loaded.engine_jpeg().decode()} {wrong}")
    return loaded


def find_decoder_fault() -> str:
    """Return why the native library cannot be used, or ""."""
    try:
        load_library()
    except UnavailableError as error:
        return str(error)
    return ""


def describe() -> str:
    """Describe the instruction set and libraries in use.

    Raises UnavailableError if the native library cannot be used.
    """
    return (
        f"{load_library().engine_instructions().decode()} instructions, "
        f"{load_library().engine_jpeg().decode()}"
    )


def shrink(
    data: np.ndarray, size: tuple[int, int], to: tuple[int, int], raw: bool = False
) -> np.ndarray | None:
    """Shrink an image of `size` (height, width), uint8, to [*to, 3] by area averaging.

    `data` is a JPEG file or raw pixels. Returns None if the native decoder rejects it. If `to` is
    (0, 0), a JPEG is only checked.
    """
    row = make_blank_rows(1)
    pixels = np.empty((*to, 3), np.uint8)
    row["data"], row["length"], row["size"], row["raw"] = data.ctypes.data, data.size, size, raw
    failed = load_library().engine_shrink(row.ctypes.data, *to, pixels.ctypes.data)
    return None if failed else pixels


def read_shrunk(row: np.ndarray) -> np.ndarray | None:
    """Return the shrunk image of a row [1], uint8 [h, w, 3]; None if it is rejected."""
    pixels = np.empty(3 * row["longest"][0] ** 2, np.uint8)
    row["geometry"], row["pixels"] = WHOLE, pixels.ctypes.data
    load_library().engine_try(row.ctypes.data, 1)
    height, width = row["size"][0]
    return None if row["status"][0] else pixels[: 3 * height * width].reshape(height, width, 3)


def _declare(loaded: ctypes.CDLL) -> None:
    handle, ticket = ctypes.c_void_p, ctypes.c_int64
    for name, result, arguments in (
        ("engine_create", handle, [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]),
        ("engine_submit", ticket, [handle, ctypes.c_void_p, ctypes.c_int64]),
        ("engine_wait", ctypes.c_int, [handle, ticket, ctypes.c_double]),
        ("engine_destroy", None, [handle]),
        ("engine_try", None, [ctypes.c_void_p, ctypes.c_int64]),
        ("engine_shrink", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, handle]),
        ("engine_layout", ctypes.c_char_p, []),
        ("engine_instructions", ctypes.c_char_p, []),
        ("engine_jpeg", ctypes.c_char_p, []),
    ):
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments


class NativeDecoder:
    """A pool of native threads that works on several batches at once, the oldest first.

    Only one thread may wait for a batch. Rows and everything they point to must stay alive until
    that wait returns.
    """

    def __init__(self, threads: int, scalar: bool = False):
        """Start the threads; `scalar` disables vector instructions.

        Raises OSError if the system allows no more threads.
        """
        self._library = load_library()
        reason = ctypes.create_string_buffer(200)
        self._handle = self._library.engine_create(threads, scalar, reason, len(reason))
        if not self._handle:
            raise OSError(
                f"cannot start {threads} threads for decoding: "
                f"{reason.value.decode(errors='replace')}"
            )
        self._kept: dict[int, np.ndarray] = {}

    def fill(self, rows: np.ndarray, reading: np.ndarray) -> np.ndarray:
        """Fill rows [N] and return the positions of rejected rows, int64 [n].

        Meanwhile `reading`, bool [N], shows which rows are being read.
        """
        ticket = self.submit(rows)
        while not self.wait(ticket, 0.5):
            reading[:] = rows["status"] == Status.RUNNING
        return np.flatnonzero(rows["status"])

    def submit(self, rows: np.ndarray) -> int:
        """Start filling rows [N]; return a ticket to wait for."""
        assert rows.dtype == make_blank_rows(0).dtype
        assert rows.flags.c_contiguous
        ticket = self._check(self._library.engine_submit(self._open(), rows.ctypes.data, len(rows)))
        self._kept[ticket] = rows
        return ticket

    def wait(self, ticket: int, seconds: float) -> bool:
        """Wait up to `seconds` and return whether every row of the batch is done.

        Other threads keep running.
        """
        is_done = bool(self._check(self._library.engine_wait(self._open(), ticket, seconds)))
        if is_done:
            self._kept.pop(ticket, None)
        return is_done

    def close(self) -> None:
        """Wait for rows in progress and stop the threads; safe to call twice."""
        if self._handle:
            self._library.engine_destroy(self._handle)
            self._handle = None

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self.close()

    def _open(self) -> int:
        if not self._handle:
            raise RuntimeError("the native decoder is closed")
        return self._handle

    def _check(self, result: int) -> int:
        if result == -2:
            raise MemoryError
        if result < 0:
            raise RuntimeError(
                f"process {os.getpid()} is a fork of the process that created this decoder, "
                "and does not have its threads"
            )
        return result
