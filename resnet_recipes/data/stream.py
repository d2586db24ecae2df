"""Training batches on the device, copied ahead of the step."""

import time
from collections.abc import Iterator

import torch

from resnet_recipes.data.base import RawBatch, TrainLoader


class Stream:
    """An endless iterator of a loader's batches on `device`, from step `first_step` on.

    On CUDA the next batch is copied by a side stream while the current step computes. On a CPU nothing is copied: a batch is valid until
    the next one is asked for.
    """

    def __init__(self, loader: TrainLoader, device: torch.device, first_step: int = 0):
        self.waited = 0.0                 # seconds for which training had to wait for the loader
        self._batches = loader.batches(first_step)
        self._device = device
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._ahead: RawBatch | None = None
        self._copied: torch.cuda.Event | None = None

    def __iter__(self) -> Iterator[RawBatch]:
        return self

    def __next__(self) -> RawBatch:
        if self._side is None:
            return self._read()
        batch = self._ahead or self._copy()
        copied = self._copied
        torch.cuda.current_stream(self._device).wait_event(copied)
        for tensor in batch:
            tensor.record_stream(torch.cuda.current_stream(self._device))        # not to be reused before this step is done with it
        self._ahead = self._copy()
        return batch

    def _copy(self) -> RawBatch:
        """Start to copy the next batch; the loader may overwrite its memory only when the copy before has ended."""
        if self._copied is not None:
            self._copied.synchronize()
        raw = self._read()
        with torch.cuda.stream(self._side):
            batch = RawBatch(*(tensor.to(self._device, non_blocking=True) for tensor in raw))
            self._copied = self._side.record_event()
        return batch

    def _read(self) -> RawBatch:
        began = time.perf_counter()
        batch = next(self._batches)
        self.waited += time.perf_counter() - began
        return batch
