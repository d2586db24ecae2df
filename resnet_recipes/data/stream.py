"""Copy the loader's batches to the device while it works on previous batches."""

import time
from collections import deque
from collections.abc import Iterator
from functools import cache

import torch

from resnet_recipes.data.base import RawBatch

#: Maximum number of batches on the device that issued steps still use.
MAX_BATCHES_IN_USE = 3


class Stream:
    """An iterator of batches on `device`.

    On CUDA, a side stream copies a batch while the device still computes on previous batches. The
    host waits for the copy of the previous batch, and each copy waits for the step
    MAX_BATCHES_IN_USE batches earlier. Otherwise a fast loader would fill device memory. On a CPU
    nothing is copied, and a batch is valid until the next one is requested.
    """

    def __init__(self, batches: Iterator[RawBatch], device: torch.device):
        self.waited = 0.0  # seconds spent waiting for the loader
        self._batches = batches
        self._device = device
        self._side = _get_side_stream(device) if device.type == "cuda" else None
        self._copied: torch.cuda.Event | None = None
        # one event per batch in flight: the device is finished with the previous batch
        self._finished: deque[torch.cuda.Event] = deque(maxlen=MAX_BATCHES_IN_USE)

    def __iter__(self) -> Iterator[RawBatch]:
        return self

    def __next__(self) -> RawBatch:
        if self._copied is not None:
            # wait for the previous copy; then the loader may overwrite its memory
            self._copied.synchronize()
        start = time.perf_counter()
        raw = next(self._batches)
        self.waited += time.perf_counter() - start
        return raw if self._side is None else self._copy(raw)

    def _copy(self, raw: RawBatch) -> RawBatch:
        """Start copying a batch; the device's next operations wait for the copy."""
        current = torch.cuda.current_stream(self._device)
        self._finished.append(current.record_event())
        if len(self._finished) == MAX_BATCHES_IN_USE:
            self._side.wait_event(self._finished[0])
        with torch.cuda.stream(self._side):
            batch = RawBatch(
                *(
                    part if part is None else part.to(self._device, non_blocking=True)
                    for part in raw
                )
            )
            self._copied = self._side.record_event()
        current.wait_event(self._copied)
        for tensor in batch:
            if tensor is not None:
                tensor.record_stream(current)  # do not reuse the memory before this step is done
        return batch


@cache
def _get_side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream for all copies to a device: torch reuses memory only on the same stream."""
    return torch.cuda.Stream(device)
