"""The workers of a loader, and its batches in memory shared by processes and GPUs."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, Self

import torch

from resnet_recipes.base.cores import count_cores
from resnet_recipes.base.errors import Note
from resnet_recipes.base.text import format_bytes
from resnet_recipes.data.base import Batching, DataConfig
from resnet_recipes.data.loading.storage import Rows
from resnet_recipes.data.order import BatchOrder
from resnet_recipes.data.shared_arrays import Layout, SharedArrays, count_layout_bytes

_MAX_WORKERS = 16  # limit of workers per rank; more are not faster


def count_workers(config: DataConfig, ranks: int) -> int:
    """Return the number of loader processes or threads per rank.

    This is the recipe's number; for auto, the rank's part of the cores, at most 16. `ranks` is the
    number of ranks on this machine if no launcher has set it.
    """
    if config.workers != "auto":
        return int(config.workers)
    return count_fair_workers(int(os.environ.get("LOCAL_WORLD_SIZE", ranks)))


def count_fair_workers(ranks: int) -> int:
    """Return the workers per rank with `data.workers=auto`, for `ranks` on this machine."""
    return max(1, min(_MAX_WORKERS, count_cores() // ranks))


def find_oversubscription(config: DataConfig) -> Iterator[Note]:
    """Yield a note if a recipe requests more workers per rank than the rank's part of the cores."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", max(1, torch.cuda.device_count())))
    # a rank needs at least one worker
    if config.workers != "auto" and int(config.workers) > max(1, count_cores() // ranks):
        each = f" for each of {ranks} ranks" if ranks > 1 else ""
        text = (
            f"data.workers={config.workers}{each} is more than the {count_cores()} cores of this "
            "machine, which slows loading"
        )
        yield Note(text, f"data.workers={count_fair_workers(ranks)}")


class Capacity(NamedTuple):
    """The resources of a loader."""

    workers: int  # threads or processes; 0: read images when requested
    prefetch: int  # batches to read ahead of the current one
    rows: int  # images of the largest batch
    image_size: int  # height and width of the largest image
    teacher_classes: int = 0  # probabilities per image that a teacher stored

    @classmethod
    def for_training(cls, config: DataConfig, batching: Batching) -> Self:
        """Return the capacity that a rank's training images need."""
        image_size = max(batching.train_sizes, default=config.train_size)
        teacher_classes = batching.soft_labels.classes if batching.soft_labels else 0
        parallel = count_workers(config, batching.world_size)
        return cls(parallel, config.prefetch, batching.rank_size, image_size, teacher_classes)

    @classmethod
    def for_evaluation(cls, config: DataConfig, batching: Batching) -> Self:
        """Return the capacity that a rank's evaluation images need."""
        return cls(
            count_workers(config, batching.world_size),
            config.prefetch,
            batching.eval_size,
            config.eval_size,
        )

    @property
    def slots(self) -> int:
        """Batches in memory: the current batch and the batches ahead."""
        return self.prefetch + 1 if self.workers else 1

    @property
    def memory(self) -> int:
        """Bytes of these batches."""
        return count_layout_bytes(self.layout)

    @property
    def layout(self) -> Layout:
        """The arrays of these batches."""
        shape = self.slots, self.rows
        return {
            "pixels": ("u1", (self.slots, self.rows * self.image_size**2 * 3)),
            "labels": ("i8", shape),
            "soft_labels": ("f4", (*shape, self.teacher_classes)),
            "reading": ("?", shape),
        }


class Slots:
    """The batches of one loader, reused in turn.

    A pickled copy shares their memory.
    """

    def __init__(self, capacity: Capacity):
        self._memory = SharedArrays(**capacity.layout)
        self._is_pinned = False

    def rows(self, slot: int, order: BatchOrder) -> Rows:
        """Return an order's rows in the batch of a slot, as views of the memory."""
        memory = self._memory
        count = len(order.indices)
        size = order.image_size**2 * 3
        rows = slice(order.first, order.first + count)
        pixels = memory["pixels"][slot, rows.start * size : rows.stop * size]
        return Rows(
            order.crop_epoch,
            order.indices,
            order.copies,
            pixels.reshape(count, order.image_size, order.image_size, 3),
            memory["labels"][slot, rows],
            memory["reading"][slot, rows],
            memory["soft_labels"][slot, rows],
        )

    def pin(self) -> list[str]:
        """Lock the memory in RAM and register it with CUDA for asynchronous copies.

        Returns a list with a note for the user if that fails, otherwise an empty list.
        """
        memory = self._memory.content
        error = torch.cuda.cudart().cudaHostRegister(memory.ctypes.data, memory.nbytes, 0).value
        self._is_pinned = not error
        if not error:
            return []
        with suppress(RuntimeError):
            torch.ones(1, device="cuda")  # CUDA repeats the error at the next launch, so consume it
        return [
            f"{format_bytes(memory.nbytes)} of batches cannot be pinned (CUDA error {error}): "
            "copies to the GPU are slower; raise `ulimit -l` or lower data.prefetch"
        ]

    def unpin(self) -> None:
        """Undo `pin`; safe to call twice."""
        if self._is_pinned:
            torch.cuda.cudart().cudaHostUnregister(self._memory.content.ctypes.data)
        self._is_pinned = False
