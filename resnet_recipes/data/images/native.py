"""Fill rows of a batch from encoded images with the native engine."""

import numpy as np

from resnet_recipes.data.images.python import EvalImages, TrainImages
from resnet_recipes.data.loading.storage import Rows, Storage
from resnet_recipes.data.native import Engine, why_not


def natively(images: TrainImages | EvalImages, threads: int) -> Storage:
    """Return images that the engine reads, if it is built and can; else these.

    Of images that are mostly no JPEGs, processes read more than the engine's threads.
    """
    if why_not() or not images.source.mostly_jpeg or not images.suit_engine:
        return images
    return NativeImages(images, threads)


class NativeImages:
    """A storage with the crops, draws and augmentation of another, and pixels within a grey level.

    Python fills the rows that the engine refuses, and reports what is wrong with them.
    """

    in_threads = True

    def __init__(self, images: TrainImages | EvalImages, threads: int):
        self.labels, self.path = images.labels, images.path
        self._images, self._engine = images, Engine(max(1, threads))

    def fill(self, rows: Rows) -> None:
        """Write the pixels; see Storage."""
        source = self._images.source
        wanted, _kept = self._images.for_engine(rows)
        source.locate(rows.indices, wanted)
        wanted["side"] = rows.pixels.shape[1]
        wanted["pixels"] = rows.pixels.ctypes.data + np.arange(len(wanted)) * rows.pixels.strides[0]
        refused = self._engine.fill(wanted, rows.reading)
        source.mark_verified(
            rows.indices[~wanted["checked"]]
        )  # others were read from a small level
        for row in refused.tolist():
            self._images.fill(rows.only(row))
