"""Fill batches ahead of their use."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager

import numpy as np
import torch

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data.base import RawBatch
from resnet_recipes.data.loading import BatchSource
from resnet_recipes.data.loading.pool import WorkerContext, WorkerPool
from resnet_recipes.data.loading.slots import Capacity, Slots
from resnet_recipes.data.loading.storage import Rows, Storage
from resnet_recipes.data.order import Job

#: Seconds without an image after which the loader gives up: a dead network drive never answers.
STUCK_SECONDS = 300.0


class Pipeline(BatchSource):
    """Batches from a storage: uint8 rows that workers write in place.

    Nothing is copied, stacked or pickled on the way from a Job to its RawBatch: a slot of memory
    holds the job's Rows, workers fill parts of them, and the batch is a view of the slot.
    """

    def __init__(self, storage: Storage, capacity: Capacity, skip_bad: bool = False):
        self.examples = len(storage.labels)
        self.notes: list[str] = []
        self._storage, self._capacity = storage, capacity
        self._slots = Slots(capacity)
        self._pool = WorkerPool(WorkerContext(storage, self._slots, skip_bad), capacity.workers)
        # batches being filled, and what their workers will return
        self._ahead: deque[tuple[Rows, list[Future[list[int]]]]] = deque()
        self._skipped: set[int] = set()
        self._runs = 0  # only the last run's batches remain valid
        if torch.cuda.is_initialized():
            self.notes += self._slots.pin()

    def run(self, jobs: Iterable[Job]) -> Iterator[RawBatch]:
        """Yield one batch for each job, in order, valid until the next is requested.

        A new run ends an earlier one.
        """
        self._abandon()
        return map(_batch, self._filled(iter(jobs), self._runs))

    def path(self, index: int) -> str:
        """Return the name of image `index`."""
        return self._storage.path(index)

    @property
    def skipped(self) -> tuple[str, ...]:
        """Images that could not be read and were replaced by their neighbours."""
        return tuple(map(self._storage.path, sorted(self._skipped)))

    def close(self) -> None:
        """Stop the workers; safe to call twice."""
        self._runs += 1
        self._pool.close()
        self._slots.unpin()

    def _filled(self, jobs: Iterator[Job], run: int) -> Iterator[Rows]:
        started = 0
        while True:
            if run != self._runs:
                raise RuntimeError(
                    "these batches ended when the loader was closed or a new iteration began"
                )
            while len(self._ahead) < self._capacity.slots and (job := next(jobs, None)) is not None:
                slot = started % self._capacity.slots
                with self._explained():
                    parts = self._pool.submit(slot, job)
                self._ahead.append((self._slots.rows(slot, job), parts))
                started += 1
            if not self._ahead:
                return
            rows, parts = self._ahead[0]
            for part in parts:
                with self._explained():
                    self._skipped.update(part.result(STUCK_SECONDS))
            self._ahead.popleft()
            yield rows

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what goes wrong with the workers themselves into a TrainingError."""
        try:
            yield
        except TimeoutError:
            self._pool.close(stuck=True)
            stuck = self._being_read()
            raise TrainingError(
                f"no image was read for {STUCK_SECONDS:g} s; the loader is stuck at {stuck}"
            ) from None
        except BrokenExecutor:
            raise TrainingError(
                f"a loader process {self._pool.death()} while reading {self._being_read()}"
            ) from None

    def _being_read(self) -> str:
        """Return the names of the first images that are now being read."""
        indices = [rows.indices[rows.reading] for rows, _ in self._ahead]
        first = np.concatenate([*indices, np.array([], np.int64)])[:4].tolist()
        return ", ".join(map(self._storage.path, first)) or "no image"

    def _abandon(self) -> None:
        """Drop the requests of an earlier run, whose slots are needed."""
        self._runs += 1
        for part in [part for _, parts in self._ahead for part in parts if not part.cancel()]:
            with self._explained():  # nobody wants its images any more, so nor its failure
                part.exception(STUCK_SECONDS)
        self._ahead.clear()


def _batch(rows: Rows) -> RawBatch:
    """Return rows as a batch, a view of them."""
    pixels, labels, taught = map(torch.from_numpy, (rows.pixels, rows.labels, rows.taught))
    return RawBatch(pixels.permute(0, 3, 1, 2), labels, taught if taught.shape[1] else None)
