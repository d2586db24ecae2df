"""The images of a conversion: image files, or a .beton file."""

import os

import numpy as np
from PIL import Image

from resnet_recipes.data.beton import JPEG, Beton
from resnet_recipes.data.beton.sidecar import halved
from resnet_recipes.data.convert.encode import ConvertOptions, Encoded, area_mean, encode, shrunk
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.images.decode import Picture, read_file


class Source:
    """Labelled images in a fixed order; small enough to send to another process."""

    origin: str  # where they are
    classes: tuple[str, ...]
    labels: np.ndarray  # int64 [N]
    # changes when images are added, removed, renamed, or replaced by others in size
    fingerprint: str
    left_out: tuple[str, ...] = ()  # files beside them that belong to no split

    def name(self, index: int) -> str:
        """Return the name of an image for messages."""
        raise NotImplementedError

    def read(self, index: int) -> bytes | np.ndarray:
        """Return the bytes of an image file, or pixels as uint8 [H, W, 3]."""
        raise NotImplementedError

    def encoded(self, index: int, options: ConvertOptions) -> Encoded | str:
        """Encode one image, or return why it cannot be read."""
        try:
            return encode(self.read(index), index, options)
        except (OSError, ValueError, MemoryError) as error:
            return str(error) or type(error).__name__

    def shuffled(self, rng: np.random.Generator) -> np.ndarray:
        """Return the images in a random order that can be read without delay, int64 [N]."""
        return rng.permutation(len(self.labels))


class FileSource(Source):
    """Image files, sorted by class and name as ImageFolder numbers them."""

    def __init__(self, listing: Listing):
        self.origin, self.classes, self.labels = listing.folder, listing.classes, listing.labels
        self.files, self.fingerprint = listing.names, listing.digest

    def name(self, index: int) -> str:
        return os.path.join(self.origin, self.files[index])

    def read(self, index: int) -> bytes:
        return read_file(self.name(index))


class BetonSource(Source):
    """The samples of a .beton file, in stored order."""

    def __init__(self, beton: Beton):
        self.origin, self.classes, self.labels = str(beton.path), beton.classes, beton.labels
        self.beton, self.fingerprint = beton, beton.structure

    def name(self, index: int) -> str:
        return f"{self.origin}, sample {index}"

    def read(self, index: int) -> bytes | np.ndarray:
        data = self.beton.sample(index)
        if complaint := self.beton.complaint(index, data):
            raise ValueError(complaint)
        if self.beton.modes[index] == JPEG:
            return data.tobytes()
        return data.reshape(*self.beton.sizes[index], 3)


class Halved(Source):
    """Another source at half its size, sides rounded up: the small level of a .beton file."""

    def __init__(self, source: Source, longest: int | None):
        """Take a source, and the longer side of its images in the full level, in pixels."""
        self.origin, self.classes, self.labels = source.origin, source.classes, source.labels
        self.fingerprint, self.source, self.longest = halved(source.fingerprint), source, longest

    def name(self, index: int) -> str:
        return self.source.name(index)

    def read(self, index: int) -> np.ndarray:
        image = self.source.read(index)
        if isinstance(image, bytes):
            image = Picture(image).whole()
        picture = shrunk(Image.fromarray(image), self.longest)
        return np.asarray(area_mean(picture, -(-picture.height // 2), -(-picture.width // 2)))

    def shuffled(self, rng: np.random.Generator) -> np.ndarray:
        return self.source.shuffled(rng)
