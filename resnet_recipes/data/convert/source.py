"""The images of a conversion: image files, or a .beton file."""

import os
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image

from resnet_recipes.data.beton.file import JPEG, Beton
from resnet_recipes.data.convert.encode import area_mean, shrunk
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.images.decode import Picture, read_file


class Source(Protocol):
    """Labelled images in a fixed order; small enough to send to another process."""

    classes: tuple[str, ...]
    labels: np.ndarray                  # int64 [N]

    @property
    def origin(self) -> str:
        """Where they are."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 that changes when images are added, removed, renamed, or replaced by files of another size."""

    def name(self, index: int) -> str:
        """Return the name of an image for messages."""

    def read(self, index: int) -> bytes | np.ndarray:
        """Return the bytes of an image file, or pixels as uint8 [H, W, 3]."""


class FileSource:
    """Image files, sorted by class and name as ImageFolder numbers them."""

    def __init__(self, listing: Listing):
        self.origin, self.classes, self.labels = listing.folder, listing.classes, listing.labels
        self.files, self.fingerprint = listing.names, listing.digest

    def name(self, index: int) -> str:
        return os.path.join(self.origin, self.files[index])

    def read(self, index: int) -> bytes:
        return read_file(self.name(index))


@dataclass(frozen=True)
class BetonSource:
    """The samples of a .beton file, in stored order."""

    beton: Beton

    @property
    def origin(self) -> str:
        return str(self.beton.path)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.beton.classes

    @property
    def labels(self) -> np.ndarray:
        return self.beton.labels

    @property
    def fingerprint(self) -> str:
        return self.beton.structure

    def name(self, index: int) -> str:
        return f"{self.beton.path}, sample {index}"

    def read(self, index: int) -> bytes | np.ndarray:
        data = self.beton.sample(index)
        if complaint := self.beton.complaint(index, data):
            raise ValueError(complaint)
        return data.tobytes() if self.beton.modes[index] == JPEG else data.reshape(*self.beton.sizes[index], 3)


@dataclass(frozen=True)
class Halved:
    """Another source at half its size, sides rounded up: the small level of a .beton file."""

    source: Source
    longest: int | None                 # pixels of the full level's longer side

    @property
    def classes(self) -> tuple[str, ...]:
        return self.source.classes

    @property
    def labels(self) -> np.ndarray:
        return self.source.labels

    @property
    def origin(self) -> str:
        return self.source.origin

    @property
    def fingerprint(self) -> str:
        return f"{self.source.fingerprint} halved"

    def name(self, index: int) -> str:
        return self.source.name(index)

    def read(self, index: int) -> np.ndarray:
        image = self.source.read(index)
        if isinstance(image, bytes):
            whole = Picture(image)
            image = whole.crop(0, 0, whole.height, whole.width)
        picture = shrunk(Image.fromarray(image), self.longest)
        return np.asarray(area_mean(picture, -(-picture.height // 2), -(-picture.width // 2)))
