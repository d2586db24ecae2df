"""The image files of a split as a source; all workers share the list in memory."""

import os
from collections.abc import Sequence
from typing import Self

import numpy as np

from resnet_recipes.base.errors import Command, Fix, Hint, NotReadyError
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.files.layout import list_split
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.images.decode import KINDS, ChangedError, Picture, Pixels, read_file
from resnet_recipes.data.shared_arrays import SharedArrays

#: Minimum fraction of JPEGs for the native decoder; Python decodes the other images, one by one.
_MIN_JPEG_FRACTION = 0.9


class Files:
    """A Source: the images of one split with their labels, sorted by class and name.

    A pickled copy shares the memory of the list.
    """

    can_skip = True

    def __init__(self, listing: Listing, root: str = "", split: str = ""):
        """Put a listing into shared memory; `root` and `split` are used in error messages."""
        self._folder, self._root, self._split = listing.folder, root, split
        self._start = np.frombuffer(os.fsencode(listing.folder) + b"\0", np.uint8)
        count = len(listing)
        self._arrays = SharedArrays(
            text=("u1", listing.text.shape),
            ends=("i8", (count + 1,)),
            labels=("i8", (count,)),
            sizes=("i8", (count,)),
        )
        self._arrays["text"][:], self._arrays["ends"][1:] = listing.text, listing.ends
        self._arrays["sizes"][:], self._arrays["labels"][:] = listing.sizes, listing.labels

    @classmethod
    def of(cls, config: DataConfig, split: str, digest: str = "") -> Self:
        """List "train" or "val".

        Raises NotReadyError if names or sizes do not match `digest`, if given, OSError if a folder
        cannot be read.
        """
        listing = list_split(config, split)
        if digest and listing.digest != digest:
            clause = f"has changed since the run started: files in {split} differ in name or size"
            hint = Hint("put the files back, or start a new run")
            raise NotReadyError.of("data.root", config.root, clause, hint)
        return cls(listing, config.root, split)

    @classmethod
    def from_paths(cls, paths: Sequence[str]) -> Self:
        """Return the files at absolute paths, in this order, with label 0."""
        images = [(path.removeprefix("/"), -1) for path in paths]
        return cls(Listing.pack("/", ("",), images, [len(images)]))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def labels(self) -> np.ndarray:
        return self._arrays["labels"]

    def path(self, index: int) -> str:
        start, end = self._arrays["ends"][index : index + 2]
        return os.path.join(self._folder, os.fsdecode(self._arrays["text"][start:end].tobytes()))

    @property
    def is_mostly_jpeg(self) -> bool:
        """Whether most of the images are JPEGs, according to their names."""
        some = np.linspace(0, len(self) - 1, min(len(self), 200)).astype(int).tolist()
        names = [self.path(index).lower() for index in some]
        return sum(name.endswith(KINDS["JPEG"]) for name in names) >= _MIN_JPEG_FRACTION * len(
            names
        )

    def read(self, index: int) -> Pixels:
        data = read_file(self.path(index))
        listed_bytes = self._arrays["sizes"][index]
        if listed_bytes not in (-1, len(data)):
            raise ChangedError(
                f"has {len(data):,} bytes, but had {listed_bytes:,} when it was listed. If this is "
                "intended, touch its folder and start again"
            )
        return Picture(data)

    def fix(self) -> Fix:
        skip = Hint("data.on_bad_image=skip replaces bad training images")
        check = Command.of("resnet-recipes", "doctor", "data", self._root)
        return (skip, check) if self._split == "train" else check

    def locate(self, indices: np.ndarray, decoder_rows: np.ndarray) -> None:
        starts = self._arrays["ends"][indices]
        decoder_rows["folder"] = self._start.ctypes.data
        decoder_rows["path"] = self._arrays["text"].ctypes.data + starts
        decoder_rows["length"] = self._arrays["ends"][indices + 1] - starts
        decoder_rows["file_bytes"] = np.maximum(self._arrays["sizes"][indices], 0)

    def mark_verified(self, indices: np.ndarray) -> None:
        """Do nothing: files have no checksums."""
