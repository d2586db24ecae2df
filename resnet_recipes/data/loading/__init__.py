"""Loaders of training and evaluation batches, which are filled ahead of their use."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data import order
from resnet_recipes.data.base import DataConfig, RawBatch, Share, normalize
from resnet_recipes.data.loading.pool import WorkerContext, WorkerPool
from resnet_recipes.data.loading.slots import Capacity, Slots
from resnet_recipes.data.loading.storage import Rows, Storage
from resnet_recipes.data.order import BatchOrder, Permute


class BatchSource:
    """Turns jobs into batches: a Pipeline over a storage, or synthetic images."""

    examples: int
    notes: Sequence[str] = ()  # notes for the user
    skipped: Sequence[str] = ()
    permute: Permute = staticmethod(order.shuffle)

    def run(self, jobs: Iterable[BatchOrder]) -> Iterator[RawBatch]:
        """Yield one batch for each job, in order; it is valid until the next one is requested.

        None instead of a job: the jobs before it have to be used first.
        """
        raise NotImplementedError

    def path(self, index: int) -> str:
        """Return the name of image `index`."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop all workers; safe to call twice."""


class EvalLoader:
    """This rank's part of the evaluation set.

    All ranks together cover each example exactly once, in a fixed order.
    """

    def __init__(self, config: DataConfig, share: Share, source: BatchSource):
        self.examples = source.examples  # over all ranks
        self._config, self._share, self.source = config, share, source

    def batches(self) -> Iterator[RawBatch]:
        """Yield this rank's evaluation batches, the last one short.

        Rank r has examples r, r + world_size, ...
        """
        return self.only(np.arange(self._share.rank, self.examples, self._share.world_size))

    def only(self, indices: np.ndarray) -> Iterator[RawBatch]:
        """Yield these images in batches, the last one short."""
        return self.source.run(order.list_eval_jobs(self._config, self._share, indices))

    def normalized(self, batch: RawBatch) -> Tensor:
        """Return a batch's images as the network takes them, float32 [N, 3, H, W]."""
        return normalize(batch.pixels, self._config.mean, self._config.std)

    def path(self, index: int) -> str:
        """Return the name of image `index`."""
        return self.source.path(index)

    def close(self) -> None:
        """Stop all workers; safe to call twice."""
        self.source.close()


class TrainLoader(EvalLoader):
    """This rank's part of an endless, shuffled stream of global batches.

    Every step can be the first, at no cost.

    The global batch of step k within epoch e is `permutation(seed, e)[k *
    global_size:][:global_size]`, whatever the number of ranks; rank r takes the r-th contiguous
    part. Incomplete last batches are dropped. Crops and flips depend only on (seed, epoch, index).
    """

    def batches(self, first_step: int = 0) -> Iterator[RawBatch]:
        """Yield an endless stream of batches, one a step from `first_step` on.

        Nothing of earlier steps is decoded, and each image of later steps once. Up to
        `data.prefetch` batches are read ahead; a run that stops loses them, and decodes them again
        when it resumes. A batch stays valid until the next one is requested. Raises TrainingError
        with the path of an unreadable image.
        """
        return self.source.run(
            order.list_train_jobs(
                self._config, self._share, self.examples, first_step, self.source.permute
            )
        )

    def whole(self, epoch: int) -> list[BatchOrder]:
        """Return this rank's jobs for all images of an epoch, with the crops of training.

        They are blocks in the order of the files, copy after copy.
        """
        return list(order.list_epoch_jobs(self._config, self._share, self.examples, epoch))


#: Seconds without an image after which the loader fails: a dead network drive never responds.
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
        # batches being filled, and the futures of their workers
        self._ahead: deque[tuple[Rows, list[Future[list[int]]]]] = deque()
        self._skipped: set[int] = set()
        self._runs = 0  # only the last run's batches remain valid
        if torch.cuda.is_initialized():
            self.notes += self._slots.pin()

    def run(self, jobs: Iterable[BatchOrder]) -> Iterator[RawBatch]:
        """Yield one batch for each job, in order, valid until the next is requested.

        A new run ends an earlier one.
        """
        self._abandon()
        return map(_make_batch, self._filled(iter(jobs), self._runs))

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

    def _filled(self, jobs: Iterator[BatchOrder], run: int) -> Iterator[Rows]:
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
        """Turn failures of worker processes into a TrainingError."""
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
        """Cancel the requests of an earlier run, to free their slots."""
        self._runs += 1
        for part in [part for _, parts in self._ahead for part in parts if not part.cancel()]:
            with self._explained():  # its images are not needed, so its failure is ignored
                part.exception(STUCK_SECONDS)
        self._ahead.clear()


def _make_batch(rows: Rows) -> RawBatch:
    """Return rows as a batch, a view of them."""
    pixels, labels, taught = map(torch.from_numpy, (rows.pixels, rows.labels, rows.taught))
    return RawBatch(pixels.permute(0, 3, 1, 2), labels, taught if taught.shape[1] else None)
