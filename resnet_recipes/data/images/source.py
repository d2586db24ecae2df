"""Where encoded images come from: files, or the samples of a .beton file."""

from typing import Protocol

import numpy as np

from resnet_recipes.data.images.decode import Pixels


class ChangedError(Exception):
    """An image that is not the one with which the run began."""


class Source(Protocol):
    """The images of one split. It pickles: workers may be processes."""

    labels: np.ndarray    # int64 [N]

    @property
    def suits_engine(self) -> bool:
        """Whether the engine decodes most of the images."""

    def __len__(self) -> int:
        """Return the number of images."""

    def path(self, index: int) -> str:
        """Return what to call image `index`."""

    def read(self, index: int) -> Pixels:
        """Read image `index`. Raises BadImageError, or ChangedError."""

    def advice(self) -> str:
        """Return what to do about an image that cannot be read."""

    def locate(self, indices: np.ndarray, wanted: np.ndarray) -> None:
        """Have ROW [n] point to the images; the memory stays as long as this source."""

    def note_intact(self, indices: np.ndarray) -> None:
        """Take note that the engine has read these images, and found their checksums right."""
