"""Training seconds: the time that a run spends on training alone."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """A stopwatch that pauses during evaluation and checkpoints, and goes on after a resume.

    It waits for the device only when it starts and stops, so that queued work counts where it was
    issued.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._before = 0.0  # seconds of earlier sessions and of finished laps
        self._since = time.perf_counter()
        self._running = True

    def seconds(self) -> float:
        """Return training seconds so far.

        Does not wait for the device: call it right after reading a value from it.
        """
        return self._before + (time.perf_counter() - self._since if self._running else 0.0)

    def restart(self, seconds: float) -> None:
        """Set the stopwatch and start it."""
        self._wait()
        self._before, self._since, self._running = seconds, time.perf_counter(), True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause inside the context."""
        self._wait()
        self._before, self._running = self.seconds(), False
        try:
            yield
        finally:
            self._wait()
            self._since, self._running = time.perf_counter(), True

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Compiling:
    """Training seconds that went into compiling, searching for algorithms and capturing graphs.

    All of that happens on the host, in the first two gradients of an image size: it is the host
    time that they take beyond that of the fastest gradient. Does not wait for the device.
    """

    def __init__(self) -> None:
        self._size: torch.Size | None = None
        self._count = 0  # gradients of this size
        self._first: list[float] = []  # seconds of the first two gradients of each size
        self._fastest = float("inf")

    def seconds(self) -> float:
        """Return the seconds so far; they never decrease."""
        return sum(seconds - self._fastest for seconds in self._first)

    @contextmanager
    def gradient(self, size: torch.Size) -> Iterator[None]:
        """Time the gradient of images of `size` inside the context."""
        began = time.perf_counter()
        yield
        took = time.perf_counter() - began
        self._count = self._count + 1 if size == self._size else 1
        self._size, self._fastest = size, min(took, self._fastest)
        if self._count <= 2:
            self._first.append(took)
