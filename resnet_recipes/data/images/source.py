"""Where encoded images come from: files, or the samples of a .beton file."""

from typing import Protocol

import numpy as np

from resnet_recipes.data.images.decode import Pixels


class ChangedError(Exception):
    """An image has changed since the run began."""


class Source(Protocol):
    """The images of one split. It pickles: workers may be processes."""

    labels: np.ndarray  # int64 [N]

    @property
    def mostly_jpeg(self) -> bool:
        """Whether most of the images are JPEGs, which the engine decodes."""

    def __len__(self) -> int:
        """Return the number of images."""

    def path(self, index: int) -> str:
        """Return the name of image `index` for messages."""

    def read(self, index: int) -> Pixels:
        """Read image `index`. Raises BadImageError, or ChangedError."""

    def advice(self) -> str:
        """Return advice for the user about an unreadable image."""

    def locate(self, indices: np.ndarray, wanted: np.ndarray) -> None:
        """Make the engine's rows [n] point to the images; memory that this source keeps."""

    def mark_verified(self, indices: np.ndarray) -> None:
        """Record that the engine need not compare the checksums of these images again."""
