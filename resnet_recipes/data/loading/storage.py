"""The interface of image storages, which fill rows of a batch."""

from typing import NamedTuple, Protocol

import numpy as np

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.base.text import format_count


class UnreadableError(Exception):
    """An image cannot be read; holds its index, the error that ends the run, and the reason."""

    def __init__(self, index: int, failure: TrainingError, reason: str = ""):
        self.index, self.failure, self.reason = index, failure, reason
        super().__init__(str(failure))


class Rows(NamedTuple):
    """Rows of a batch to fill. All randomness is a function of (seed, epoch, index, copy)."""

    crop_epoch: int
    indices: np.ndarray  # int64 [n], image indices
    copies: np.ndarray  # int64 [n], earlier uses of the image in this epoch
    pixels: np.ndarray  # uint8 [n, S, S, 3], output
    labels: np.ndarray  # int64 [n], output
    # bool [n], true while a row is being read: shows which image a worker is stuck on
    reading: np.ndarray
    # float32 [n, K], output: a teacher's probabilities; K is 0 without stored soft labels
    soft_labels: np.ndarray = np.empty((0, 0), np.float32)

    def select_row(self, row: int) -> "Rows":
        """Return the rows with this single row."""
        return Rows(self.crop_epoch, *(field[row : row + 1] for field in self[1:]))


class Storage(Protocol):
    """The images of one split, cropped for training or evaluation."""

    labels: np.ndarray  # int64 [N]
    # fill() releases the GIL, so threads suffice; otherwise worker processes unpickle the storage
    in_threads: bool

    def fill(self, rows: Rows) -> None:
        """Write `rows.pixels`. Raises UnreadableError for the first image that cannot be read."""

    def path(self, index: int) -> str:
        """Return the name of image `index` for messages."""


def fill(storage: Storage, rows: Rows, skip_bad: bool = False) -> list[int]:
    """Fill the rows and their labels; return the indices of images that were skipped.

    With `skip_bad`, an unreadable image is replaced by the next readable one. Raises
    UnreadableError without `skip_bad`, or if 100 images in sequence, or all, cannot be read.
    """
    try:
        storage.fill(rows)
    except UnreadableError:
        if not skip_bad:
            raise
        return _fill_skipping(storage, rows)
    rows.labels[:] = storage.labels[rows.indices]
    return []


def _fill_skipping(storage: Storage, rows: Rows) -> list[int]:
    bad = []
    examples = len(storage.labels)
    tries = min(100, examples)
    for row, index in enumerate(rows.indices.tolist()):
        for candidate in range(index, index + tries):
            single = rows.select_row(row)._replace(indices=np.array([candidate % examples]))
            try:
                bad += fill(storage, single)
                break
            except UnreadableError as error:
                bad.append(error.index)
        else:
            others = format_count(tries - 1, "image")
            statement = f"{storage.path(index)} and the {others} after it cannot be read"
            raise UnreadableError(index, TrainingError(statement))
    return bad
