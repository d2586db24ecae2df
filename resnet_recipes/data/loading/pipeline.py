"""Fill batches ahead of their use."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from typing import NamedTuple

import torch

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data.base import RawBatch
from resnet_recipes.data.loading.loader import Supply
from resnet_recipes.data.loading.pool import WorkerPool
from resnet_recipes.data.loading.slots import Capacity, Piece, Slots
from resnet_recipes.data.loading.storage import Rows, Storage
from resnet_recipes.data.loading.worker import Filled, WorkerContext
from resnet_recipes.data.order import Job

#: Seconds without an image after which the loader gives up: a dead network drive never answers.
PATIENCE = 300.0


class Pending(NamedTuple):
    """A batch being filled."""

    rows: Rows
    pieces: list[Future[Filled]]


class Pipeline(Supply):
    """Batches from a storage: uint8 rows that workers write in place, so that nothing is copied, stacked or pickled.

    Any object with WorkerPool's `submit`, `death` and `close` can fill the slots instead; only
    `result` and `cancel` of its futures are used.
    """

    def __init__(self, storage: Storage, capacity: Capacity, skip_bad: bool = False):
        self.examples = len(storage.labels)
        self.notes: list[str] = []
        self._storage, self._capacity = storage, capacity
        self._slots = Slots(capacity)
        self._pool = WorkerPool(WorkerContext(storage, self._slots, skip_bad), capacity.workers)
        self._pending: deque[Pending] = deque()
        self._skipped: set[int] = set()
        self._runs = 0  # only the last run's batches remain valid
        self._is_pinned = False
        if torch.cuda.is_initialized():
            note = self._slots.pin()
            self._is_pinned = note is None
            self.notes += [note] if note else []

    def run(self, jobs: Iterable[Job]) -> Iterator[RawBatch]:
        """Yield one batch for each job, in order, valid until the next is requested; a new run ends an earlier one."""
        self._abandon()
        return map(_batch, self._filled(iter(jobs), self._runs))

    @property
    def skipped(self) -> tuple[str, ...]:
        """Images that could not be read and were replaced by their neighbours."""
        return tuple(map(self._storage.path, sorted(self._skipped)))

    def close(self) -> None:
        """Stop the workers; safe to call twice."""
        self._runs += 1
        self._pool.close()
        if self._is_pinned:
            self._slots.unpin()
            self._is_pinned = False

    def _filled(self, jobs: Iterator[Job], run: int) -> Iterator[Rows]:
        started = 0
        while True:
            if run != self._runs:
                raise RuntimeError(
                    "these batches ended when the loader was closed or a new iteration began"
                )
            while (
                len(self._pending) < self._capacity.slots and (job := next(jobs, None)) is not None
            ):
                batch = Piece(
                    started % self._capacity.slots, job.epoch, job.pixels, 0, len(job.indices)
                )
                self._pending.append(
                    Pending(self._slots.place(batch, job), self._pool.submit(batch))
                )
                started += 1
            if not self._pending:
                return
            for piece in self._pending[0].pieces:
                filled = self._waited(piece)
                if filled.failure:
                    raise TrainingError(filled.failure)
                self._skipped.update(filled.skipped)
            yield self._pending.popleft().rows

    def _waited(self, piece: Future[Filled]) -> Filled:
        try:
            return piece.result(PATIENCE)
        except TimeoutError:
            self._pool.close(stuck=True)
            stuck = self._being_read()
            raise TrainingError(
                f"no image was read for {PATIENCE:g} s; the loader is stuck at {stuck}"
            ) from None
        except BrokenExecutor:
            raise TrainingError(
                f"a loader process {self._pool.death()} while reading {self._being_read()}"
            ) from None

    def _being_read(self) -> str:
        return (
            ", ".join(map(self._storage.path, self._slots.being_read()[:4].tolist())) or "no image"
        )

    def _abandon(self) -> None:
        """Drop the requests of an earlier run, whose slots are needed."""
        self._runs += 1
        rest = [
            piece for pending in self._pending for piece in pending.pieces if not piece.cancel()
        ]
        self._pending.clear()
        for piece in rest:
            self._waited(piece)


def _batch(rows: Rows) -> RawBatch:
    """Return rows as a batch, a view of them."""
    return RawBatch(
        torch.from_numpy(rows.pixels).permute(0, 3, 1, 2), torch.from_numpy(rows.labels)
    )
