"""What stores images, and how it fills rows of a batch."""

from typing import NamedTuple, Protocol

import numpy as np


class UnreadableError(Exception):
    """An image that cannot be read. Carries its index, a sentence that names it, and the reason alone."""

    def __init__(self, index: int, sentence: str, reason: str = ""):
        self.index, self.reason = index, reason
        super().__init__(sentence)


class Rows(NamedTuple):
    """Rows of a batch to fill. An image's randomness depends on (seed, epoch, index, copy) alone."""

    epoch: int
    indices: np.ndarray   # int64 [n], which images
    copies: np.ndarray    # int64 [n], which use of the image in this epoch
    pixels: np.ndarray    # uint8 [n, S, S, 3], written
    labels: np.ndarray    # int64 [n], written
    reading: np.ndarray   # bool [n], true while a row is read: names the image that a worker is stuck at


class Storage(Protocol):
    """The images of one split, cropped as training or evaluation wants them."""

    labels: np.ndarray    # int64 [N]
    in_threads: bool      # fill() releases the interpreter lock, so threads suffice; else it is pickled to processes

    def fill(self, rows: Rows) -> None:
        """Write `rows.pixels`. Raises UnreadableError for the first image that cannot be read."""

    def path(self, index: int) -> str:
        """Return what to call image `index`."""


def fill(storage: Storage, rows: Rows, skip_bad: bool = False) -> list[int]:
    """Fill the rows and their labels; return the indices of images that were skipped.

    With `skip_bad`, the next readable image takes the place of an unreadable one. Raises UnreadableError.
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
    bad, examples = [], len(storage.labels)
    for row, index in enumerate(rows.indices.tolist()):
        place = slice(row, row + 1)
        for candidate in range(index, index + min(100, examples)):
            indices = np.array([candidate % examples])
            try:
                bad += fill(storage, Rows(rows.epoch, indices, *(field[place] for field in rows[2:])))
                break
            except UnreadableError as error:
                bad.append(error.index)
        else:
            raise UnreadableError(index, f"{storage.path(index)} and the 99 images after it cannot be read")
    return bad
