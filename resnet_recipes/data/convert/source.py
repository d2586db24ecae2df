"""The images of a conversion: image files, a .beton file, or shards of other programs."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from PIL import Image

from resnet_recipes.data.beton.samples import open_samples
from resnet_recipes.data.beton.sidecar import halved
from resnet_recipes.data.convert.encode import ConvertOptions, Encoded, area_mean, encode, shrunk
from resnet_recipes.data.files import Files
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.images.decode import ChangedError, Pixels
from resnet_recipes.data.images.python import Readable


@dataclass(frozen=True)
class Original:
    """Labelled images in a fixed order; small enough to send to another process."""

    images: Readable
    place: str  # whence they come: a folder, or a file
    classes: tuple[str, ...]
    # changes when images are added, removed, renamed, or replaced by others in size
    fingerprint: str
    left_out: tuple[str, ...] = ()  # files beside them that belong to no split
    groups: np.ndarray | None = None  # int64 [N], of images that are read together; None: none are

    @classmethod
    def files(cls, listing: Listing, place: Path) -> Self:
        """Return image files, sorted by class and name as ImageFolder numbers them.

        They were found at `place`, a folder or a table.
        """
        return cls(Files(listing), os.path.realpath(place), listing.classes, listing.digest)

    @classmethod
    def beton(cls, path: Path) -> Self:
        """Return the samples of a .beton file, in stored order. Raises NotReadyError."""
        samples = open_samples(path)
        return cls(samples, os.path.realpath(path), samples.beton.classes, samples.beton.structure)

    def halved(self, longest: int | None) -> Self:
        """Return the same images at half their size, for the small level of a .beton file.

        `longest` is the longer side of its images in the full level, in pixels.
        """
        images, fingerprint = Halved(self.images, longest), halved(self.fingerprint)
        return replace(self, images=images, fingerprint=fingerprint, left_out=())

    def encoded(self, index: int, options: ConvertOptions) -> Encoded | str:
        """Encode one image, or return why it cannot be read."""
        try:
            return encode(self.images.read(index), index, options)
        except (OSError, ValueError, MemoryError, ChangedError) as error:
            return str(error) or type(error).__name__

    def shuffled(self, rng: np.random.Generator) -> np.ndarray:
        """Return the images in a random order that can be read without delay, int64 [N]."""
        count = len(self.images.labels)
        if self.groups is None:
            return rng.permutation(count)
        groups = np.split(np.arange(count), np.flatnonzero(np.diff(self.groups)) + 1)
        mixed = [rng.permutation(groups[number]) for number in rng.permutation(len(groups))]
        return np.concatenate(mixed)


class Halved:
    """Images at half their size, sides rounded up."""

    def __init__(self, images: Readable, longest: int | None):
        self.labels, self.path = images.labels, images.path
        self._images, self._longest = images, longest

    def read(self, index: int) -> Pixels:
        """Read one image. Raises BadImageError, or ChangedError."""
        picture = shrunk(Image.fromarray(self._images.read(index).whole()), self._longest)
        half = area_mean(picture, -(-picture.height // 2), -(-picture.width // 2))
        return Pixels(np.asarray(half))
