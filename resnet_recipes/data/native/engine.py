"""C++ threads that fill rows of batches without the interpreter."""

import ctypes
import os
from typing import Self

import numpy as np

from resnet_recipes.data.native.library import library
from resnet_recipes.data.native.rows import Status, blank_rows


class Engine:
    """A pool of native threads that works on several batches at once, the oldest first.

    Only one thread may wait for a batch. Rows, and everything they point to, must stay alive until
    that wait returns.
    """

    def __init__(self, threads: int, scalar: bool = False):
        """Start the threads; `scalar` avoids vector instructions.

        OSError if the system allows no more threads.
        """
        self._library = library()
        reason = ctypes.create_string_buffer(200)
        self._engine = self._library.engine_create(threads, scalar, reason, len(reason))
        if not self._engine:
            raise OSError(
                f"cannot start {threads} threads for decoding: "
                f"{reason.value.decode(errors='replace')}"
            )
        self._kept: dict[int, np.ndarray] = {}

    def fill(self, rows: np.ndarray, reading: np.ndarray) -> np.ndarray:
        """Fill rows [N] and return the positions of refused rows, int64 [n].

        Meanwhile `reading`, bool [N], shows which rows are being read.
        """
        ticket = self.submit(rows)
        while not self.wait(ticket, 0.5):
            reading[:] = rows["status"] == Status.RUNNING
        return np.flatnonzero(rows["status"])

    def submit(self, rows: np.ndarray) -> int:
        """Start filling rows [N]; return a ticket to wait for."""
        assert rows.dtype == blank_rows(0).dtype
        assert rows.flags.c_contiguous
        ticket = self._checked(
            self._library.engine_submit(self._open(), rows.ctypes.data, len(rows))
        )
        self._kept[ticket] = rows
        return ticket

    def wait(self, ticket: int, seconds: float) -> bool:
        """Wait up to `seconds` and return whether every row of the batch is done.

        Other threads keep running.
        """
        whole = bool(self._checked(self._library.engine_wait(self._open(), ticket, seconds)))
        if whole:
            self._kept.pop(ticket, None)
        return whole

    def close(self) -> None:
        """Wait for rows in progress and stop the threads; safe to call twice."""
        if self._engine:
            self._library.engine_destroy(self._engine)
            self._engine = None

    def __del__(self) -> None:
        if hasattr(self, "_engine"):
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self) -> int:
        if not self._engine:
            raise RuntimeError("the engine is closed")
        return self._engine

    def _checked(self, result: int) -> int:
        if result == -2:
            raise MemoryError
        if result < 0:
            raise RuntimeError(
                f"process {os.getpid()} was forked from the one whose engine this is, and has none "
                "of its threads"
            )
        return result
