"""Measure the time that a run spends on training, in seconds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """A stopwatch that pauses during evaluation and checkpoints, and continues after a resume.

    It waits for the device only when it pauses, continues or restarts. Queued work counts as
    training if it was issued during training.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._earlier_seconds = 0.0  # seconds before the last start, including earlier sessions
        self._started_at = time.perf_counter()
        self._is_running = True

    def seconds(self) -> float:
        """Return the training seconds so far.

        Does not wait for the device: call it right after reading a value from the device.
        """
        now = time.perf_counter() if self._is_running else self._started_at
        return self._earlier_seconds + (now - self._started_at)

    def restart(self, seconds: float) -> None:
        """Start the stopwatch at `seconds`."""
        self._wait()
        self._earlier_seconds = seconds
        self._started_at = time.perf_counter()
        self._is_running = True

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Pause inside the context."""
        self._wait()
        self._earlier_seconds = self.seconds()
        self._is_running = False
        try:
            yield
        finally:
            self._wait()
            self._started_at = time.perf_counter()
            self._is_running = True

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class CompilationTimer:
    """Measures the training seconds spent on compilation and cuDNN searches.

    The result is the host time of the first two gradients after each change of the image shape,
    each minus the host time of the fastest gradient. Does not wait for the device.
    """

    def __init__(self) -> None:
        self._shape: torch.Size | None = None
        self._count = 0  # consecutive gradients of this shape
        # host seconds of the first two gradients after each change of shape
        self._first_seconds: list[float] = []
        self._fastest = float("inf")

    def seconds(self) -> float:
        """Return the seconds so far; they never decrease."""
        return sum(seconds - self._fastest for seconds in self._first_seconds)

    @contextmanager
    def time_gradient(self, shape: torch.Size) -> Iterator[None]:
        """Time the gradient of images of `shape`, [N, 3, H, W], inside the context."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self._count = self._count + 1 if shape == self._shape else 1
        self._shape, self._fastest = shape, min(seconds, self._fastest)
        if self._count <= 2:
            self._first_seconds.append(seconds)
