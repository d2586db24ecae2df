"""Loaders of training and evaluation batches, which are filled ahead of time."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.data.base import Batching, DataConfig, RawBatch, normalize
from resnet_recipes.data.loading.pool import WorkerContext, WorkerPool
from resnet_recipes.data.loading.slots import Capacity, Slots
from resnet_recipes.data.loading.storage import Rows, Storage
from resnet_recipes.data.order import (
    BatchOrder,
    EpochOrder,
    generate_epoch_batches,
    generate_eval_batches,
    generate_train_batches,
    shuffle,
)


class BatchSource:
    """Turns orders into batches: a Pipeline over a storage, or synthetic images."""

    examples: int
    notes: Sequence[str] = ()  # printed and recorded when training starts
    skipped: Sequence[str] = ()
    order_epoch: EpochOrder = staticmethod(shuffle)

    def read(self, orders: Iterable[BatchOrder]) -> Iterator[RawBatch]:
        """Yield one batch for each order, in turn; it is valid until the next one is requested."""
        raise NotImplementedError

    def path(self, index: int) -> str:
        """Return the name of image `index`."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop all workers; safe to call twice."""


class Loader:
    """This rank's part of the images of a split, in batches."""

    def __init__(self, config: DataConfig, batching: Batching, source: BatchSource):
        self.examples = source.examples  # number of examples, over all ranks
        self._config, self._batching, self.source = config, batching, source

    def normalize(self, batch: RawBatch) -> Tensor:
        """Return the images of a batch normalized for the network, float32 [N, 3, H, W]."""
        return normalize(batch.pixels, self._config.mean, self._config.std)

    def close(self) -> None:
        """Stop all workers; safe to call twice."""
        self.source.close()


class EvalLoader(Loader):
    """This rank's part of the evaluation set.

    All ranks together cover each example exactly once, in a fixed order.
    """

    def batches(self) -> Iterator[RawBatch]:
        """Yield this rank's evaluation batches; the last one may be shorter.

        Rank r gets examples r, r + world_size, ...
        """
        return self.eval_batches(
            np.arange(self._batching.rank, self.examples, self._batching.world_size)
        )

    def eval_batches(self, indices: np.ndarray) -> Iterator[RawBatch]:
        """Yield these images in batches, with evaluation crops; the last one may be shorter."""
        return self.source.read(generate_eval_batches(self._config, self._batching, indices))


class TrainLoader(Loader):
    """This rank's part of an endless, shuffled stream of global batches.

    The stream can start at any step at no extra cost. The global batch of step k within epoch e is
    `order_epoch(seed, e, examples)[k * global_size:][:global_size]` for any number of ranks. Rank r
    gets the r-th contiguous part, unless images are repeated. The order is a permutation, unless
    `data.sampling` repeats images of rare classes. Incomplete last batches are dropped. Crops and
    flips depend only on the seed, the epoch, the image and the number of its copy.
    """

    def batches(self, first_step: int = 0) -> Iterator[RawBatch]:
        """Yield an endless stream of batches, one per step, starting at `first_step`.

        Images of earlier steps are not decoded, and each image of later steps is decoded once. Up
        to `data.prefetch` batches are read ahead; a stopped run loses them and decodes them again
        when it resumes. A batch stays valid until the next one is requested. Raises TrainingError
        if an image cannot be read, or a worker dies or is stuck.
        """
        return self.source.read(
            generate_train_batches(
                self._config, self._batching, self.examples, first_step, self.source.order_epoch
            )
        )

    def list_epoch(self, epoch: int) -> list[BatchOrder]:
        """Return this rank's orders for all images of an epoch, with training crops.

        They are blocks in file order, copy after copy.
        """
        return list(generate_epoch_batches(self._config, self._batching, self.examples, epoch))


#: Seconds without a new image until the run stops: a dead network drive never responds.
STUCK_SECONDS = 300.0


class Pipeline(BatchSource):
    """Batches from a storage: uint8 rows that workers write in place.

    No pixels are copied, stacked or pickled. A memory slot holds the Rows of an order; workers fill
    parts of them, and the batch is a view of the slot.
    """

    def __init__(self, storage: Storage, capacity: Capacity, skip_bad: bool = False):
        self.examples = len(storage.labels)
        self.notes: list[str] = []
        self._storage, self._capacity = storage, capacity
        self._slots = Slots(capacity)
        self._pool = WorkerPool(WorkerContext(storage, self._slots, skip_bad), capacity.workers)
        # batches in progress, and the futures of their workers
        self._ahead: deque[tuple[Rows, list[Future[list[int]]]]] = deque()
        self._skipped: set[int] = set()
        self._reads = 0  # calls of `read` and `close`; only batches of the last call are valid
        if torch.cuda.is_initialized():
            self.notes += self._slots.pin()

    def read(self, orders: Iterable[BatchOrder]) -> Iterator[RawBatch]:
        """Yield one batch for each order; this ends the batches of an earlier call."""
        self._cancel_requests()
        return map(_make_batch, self._fill_slots(iter(orders), self._reads))

    def path(self, index: int) -> str:
        return self._storage.path(index)

    @property
    def skipped(self) -> tuple[str, ...]:
        """Images that could not be read and were replaced by the next readable one."""
        return tuple(map(self._storage.path, sorted(self._skipped)))

    def close(self) -> None:
        self._reads += 1
        self._pool.close()
        self._slots.unpin()

    def _fill_slots(self, orders: Iterator[BatchOrder], number: int) -> Iterator[Rows]:
        started = 0
        while True:
            if number != self._reads:
                raise RuntimeError(
                    "these batches ended when the loader was closed or a new iteration started"
                )
            while (
                len(self._ahead) < self._capacity.slots
                and (order := next(orders, None)) is not None
            ):
                slot = started % self._capacity.slots
                with self._convert_failures():
                    parts = self._pool.submit(slot, order)
                self._ahead.append((self._slots.rows(slot, order), parts))
                started += 1
            if not self._ahead:
                return
            rows, parts = self._ahead[0]
            for part in parts:
                with self._convert_failures():
                    self._skipped.update(part.result(STUCK_SECONDS))
            self._ahead.popleft()
            yield rows

    @contextmanager
    def _convert_failures(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            self._pool.close(is_stuck=True)
            stuck = self._format_pending_images()
            raise TrainingError(
                f"no image was read for {STUCK_SECONDS:g} s; the loader is stuck at {stuck}"
            ) from None
        except BrokenExecutor:
            death = self._pool.close_after_death()
            raise TrainingError(
                f"a loader process {death} while reading {self._format_pending_images()}"
            ) from None

    def _format_pending_images(self) -> str:
        indices = [rows.indices[rows.reading] for rows, _ in self._ahead]
        first = np.concatenate([*indices, np.array([], np.int64)])[:4].tolist()
        return ", ".join(map(self._storage.path, first)) or "no image"

    def _cancel_requests(self) -> None:
        self._reads += 1
        for part in [part for _, parts in self._ahead for part in parts if not part.cancel()]:
            with self._convert_failures():  # the images are not needed, so ignore failures
                part.exception(STUCK_SECONDS)
        self._ahead.clear()


def _make_batch(rows: Rows) -> RawBatch:
    pixels, labels, soft_labels = map(
        torch.from_numpy, (rows.pixels, rows.labels, rows.soft_labels)
    )
    return RawBatch(
        pixels.permute(0, 3, 1, 2), labels, soft_labels if soft_labels.shape[1] else None
    )
