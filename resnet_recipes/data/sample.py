"""Some of a run's images, looked at before it starts: what all of them take in memory."""

from contextlib import suppress
from statistics import mean
from typing import NamedTuple, Self

import numpy as np

from resnet_recipes.base.cores import available_memory
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.base import SAMPLED, DataFacts
from resnet_recipes.data.beton.samples import Samples, open_samples
from resnet_recipes.data.files import Files
from resnet_recipes.data.images.decode import BadImageError, ChangedError, Pixels
from resnet_recipes.data.images.memory import USABLE
from resnet_recipes.data.images.shrink import shrunk_size


class Sample(NamedTuple):
    """Evenly spaced training images that can be read."""

    source: Files | Samples
    indices: np.ndarray  # int64 [n]
    shapes: np.ndarray  # int64 [n, 2], height and width
    images: int  # training and validation images of the run

    @classmethod
    def of(cls, facts: DataFacts) -> Self | None:
        """Look at some images; None if none can be read, as of a plan without data."""
        try:
            is_beton = facts.backend == "ffcv"
            path = facts.root / "train.beton"
            source = open_samples(path) if is_beton else Files.named(facts.sample)
        except NotReadyError:
            return None
        if not len(source):
            return None
        some = np.unique(np.linspace(0, len(source) - 1, SAMPLED).astype(int))
        shapes = {}
        for index in some:
            with suppress(BadImageError, ChangedError, OSError):
                picture: Pixels = source.read(int(index))
                shapes[int(index)] = picture.height, picture.width
        if not shapes:
            return None
        indices, sizes = np.array([*shapes]), np.array([*shapes.values()])
        return cls(source, indices, sizes, facts.train_examples + facts.eval_examples)

    def bytes_at(self, longest: int) -> int:
        """Return about how many bytes all images take with a longer side of `longest`."""
        sizes = [shrunk_size(int(height), int(width), longest) for height, width in self.shapes]
        return int(self.images * mean(3 * height * width for height, width in sizes))


def room() -> int:
    """Return how many bytes of images the memory of this machine or container has room for."""
    return int(USABLE * available_memory())
