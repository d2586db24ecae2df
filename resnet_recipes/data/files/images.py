"""The images of a split in memory that all its workers share."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.shared import SharedArrays
from resnet_recipes.errors import NotReadyError, Problem


class Files:
    """The images of one split with their labels, sorted by class and name. Pickles, and stays shared."""

    def __init__(self, split: Path, digest: str = ""):
        """List the split. Raises NotReadyError if a `digest` is given, and names or sizes differ."""
        listing = Listing.of(split)
        if digest and listing.digest != digest:
            rule = "has other files than when the run began: names or sizes have changed"
            raise NotReadyError([Problem("data.root", str(split), rule, "put the files back, or start a new run")])
        self._hold(str(split), listing)

    @classmethod
    def named(cls, paths: Sequence[str]) -> Self:
        """Return files by their absolute paths, in this order, with label 0."""
        files, names = cls.__new__(cls), [os.fsencode(path.removeprefix("/")) for path in paths]
        text, ends = np.frombuffer(b"".join(names), np.uint8), np.cumsum([len(name) for name in names], dtype=np.int64)
        files._hold("/", Listing(("",), text, ends, np.full(len(names), -1), np.array([len(names)]), Counter()))
        return files

    def _hold(self, split: str, listing: Listing) -> None:
        """Put a listing into shared memory."""
        self.split = split
        count = len(listing.sizes)
        self._arrays = SharedArrays(text=("u1", listing.names.shape), ends=("i8", (count + 1,)),
                                    labels=("i8", (count,)), sizes=("i8", (count,)))
        self._arrays["text"][:], self._arrays["ends"][1:] = listing.names, listing.ends
        self._arrays["sizes"][:] = listing.sizes
        self._arrays["labels"][:] = np.repeat(np.arange(len(listing.classes)), listing.counts)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def labels(self) -> np.ndarray:
        """Labels of all images, int64 [N]."""
        return self._arrays["labels"]

    def size(self, index: int) -> int:
        """Return the bytes of image `index` when it was listed; -1 if unknown."""
        return int(self._arrays["sizes"][index])

    def located(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return where images are, without a loop: all names, uint8; starts and lengths of theirs; file sizes or -1."""
        starts = self._arrays["ends"][indices]
        return self._arrays["text"], starts, self._arrays["ends"][indices + 1] - starts, self._arrays["sizes"][indices]

    def path(self, index: int) -> str:
        """Return where image `index` is."""
        start, end = self._arrays["ends"][index:index + 2]
        return os.path.join(self.split, os.fsdecode(self._arrays["text"][start:end].tobytes()))
