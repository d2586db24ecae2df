"""Training images that workers read, and a device decodes."""

import numpy as np

from resnet_recipes.data.images.decode import Picture
from resnet_recipes.data.images.python import Images, TrainImages
from resnet_recipes.data.loading.storage import ROOM, Rows


class EncodedTrainImages(Images):
    """TrainImages whose rows are JPEGs with what to cut out of them, where every decoder takes them.

    What is left, `images` decodes to pixels: other kinds, progressive, CMYK and damaged files, and
    those beyond ROOM.
    """

    def __init__(self, images: TrainImages):
        super().__init__(images.source)
        self.images = images

    def fill(self, rows: Rows) -> None:
        """Write a parcel or the pixels of each row; see Storage."""
        pictures = [self._opened(rows, row) for row in range(len(rows.indices))]
        sizes = np.array([(picture.height, picture.width) for picture in pictures])
        cuts = self.images.crop.cuts(rows.epoch, rows.indices, rows.copies, sizes)
        rows.parcels["cut"] = np.column_stack([sizes, *cuts])
        for row, picture in enumerate(pictures):
            file = picture.baseline() if isinstance(picture, Picture) else b""
            file = file if len(file) <= ROOM else b""
            rows.parcels["length"][row] = len(file)
            rows.parcels["data"][row, : len(file)] = np.frombuffer(file, np.uint8)
            if not file:
                self.images.fill(rows.only(row))
