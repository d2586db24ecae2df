"""Class folders as a storage: image files become rows of a batch."""

import math
import os
import shlex
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image

from resnet_recipes.data.base import SampleAugment
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.files.decode import BadImageError, Picture, read_file, resized
from resnet_recipes.data.files.images import Files
from resnet_recipes.data.loading.storage import Rows, UnreadableError


class ChangedError(Exception):
    """A file that was changed in place, which the time of its folder does not show."""


class FileStorage:
    """Image files: what both splits have in common."""

    in_threads = False

    def __init__(self, files: Files):
        self._files = files
        self.labels = files.labels

    def path(self, index: int) -> str:
        """Return the file of image `index`."""
        return self._files.path(index)

    def _opened(self, rows: Rows, row: int) -> Picture:
        """Read one file and its header."""
        with self._reading(rows, row):
            data = read_file(self.path(rows.indices[row]))
            if (listed := self._files.size(rows.indices[row])) not in (-1, len(data)):
                raise ChangedError(f"has {len(data):,} bytes, and had {listed:,} when it was listed. If that is right, "
                                   "touch its folder and start again")
            return Picture(data)

    @contextmanager
    def _reading(self, rows: Rows, row: int) -> Iterator[None]:
        """Mark one image as the one that is read; complain of it if it is bad, and say what to type."""
        rows.reading[:] = False
        rows.reading[row] = True
        try:
            yield
        except BadImageError as error:
            index, (root, split) = int(rows.indices[row]), os.path.split(self._files.split)
            skip = "data.on_bad_image=skip  replaces bad training images;  " if split == "train" else ""
            lists = f"resnet-recipes doctor data {shlex.quote(root)}  lists them"
            sentence = f"{self.path(index)} {error}\n    {skip}{lists}"
            raise UnreadableError(index, sentence) from None


class TrainFiles(FileStorage):
    """Random crops, resized, mirrored and augmented: a function of (seed, epoch, index, copy)."""

    def __init__(self, files: Files, crop: TrainCrop, augment: SampleAugment | None = None, reduce: bool = True):
        super().__init__(files)
        self.crop, self.augment, self.reduce = crop, augment, reduce

    def fill(self, rows: Rows) -> None:
        """Write the pixels; see Storage."""
        pictures = deque(self._opened(rows, row) for row in range(len(rows.indices)))
        sizes = np.array([(picture.height, picture.width) for picture in pictures])
        boxes, mirrored, bicubic = self.crop.cuts(rows.epoch, rows.indices, rows.copies, sizes)
        for row in range(len(pictures)):
            with self._reading(rows, row):
                side, is_bicubic = rows.pixels.shape[1], bool(bicubic[row])
                pixels = pictures.popleft().resized_crop(*boxes[row].tolist(), side, self.reduce, is_bicubic)
            if mirrored[row]:
                pixels = pixels[:, ::-1]
            if self.augment:
                rng = self.crop.generator(rows.epoch, int(rows.indices[row]), int(rows.copies[row]))
                pixels = np.asarray(self.augment(Image.fromarray(pixels), rng))
            rows.pixels[row] = pixels


class EvalFiles(FileStorage):
    """The centre of the whole image, resized to a shorter side of `resize`: torchvision's Resize and CenterCrop."""

    bicubic = False

    def __init__(self, files: Files, resize: int):
        super().__init__(files)
        self.resize = resize

    def fill(self, rows: Rows) -> None:
        """Write the pixels; see Storage."""
        side = rows.pixels.shape[1]
        for row in range(len(rows.indices)):
            picture = self._opened(rows, row)
            box, top, left = _centre(picture.height, picture.width, self.resize, side)
            with self._reading(rows, row):
                image = resized(picture.crop(*box), *_shorter_side(*box[2:], self.resize), self.bicubic)
            rows.pixels[row] = image[0].permute(1, 2, 0).numpy()[top:top + side, left:left + side]


def _centre(height: int, width: int, resize: int, side: int) -> tuple[list[int], int, int]:
    """Return the box to resize to a shorter side of `resize`, and the corner of the centre crop: (box, top, left).

    The box is the whole image, or four squares in the middle of one longer than five: a line of 20,000 pixels would
    else become
    4.6 million by 232. That moves the crop by less than a pixel.
    """
    box, sizes, shorter = [0, 0, height, width], (height, width), min(height, width)
    resized = _shorter_side(height, width, resize)
    corner = [round((length - side) / 2) for length in resized]    # half to even, as torchvision
    if (squares := max(sizes) // shorter) > 5:
        axis, before = sizes.index(max(sizes)), squares // 2 - 2
        box[axis], box[axis + 2] = before * shorter, 4 * shorter
        corner[axis] -= before * resize
    return box, *corner


def _shorter_side(height: int, width: int, side: int) -> tuple[int, int]:
    """Return the size of an image whose shorter side becomes `side`; the longer is rounded down, as in torchvision."""
    if height <= width:
        return side, math.floor(side * width / height)
    return math.floor(side * height / width), side
