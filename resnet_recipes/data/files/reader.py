"""From files to the rows of a batch: what a loader worker does."""

import math
import os
import shlex
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image

from resnet_recipes.data.base import SampleAugment
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.files.decode import BadImageError, Picture, read_file, resized
from resnet_recipes.data.files.folder import Files


class UnreadableError(Exception):
    """An image that could not be read. Carries its index, and a sentence with its path."""

    def __init__(self, index: int, sentence: str):
        self.index = index
        super().__init__(sentence)


class Rows(NamedTuple):
    """Rows of a batch, for a reader to fill."""

    indices: np.ndarray   # int64 [n], which images
    epoch: int
    pixels: np.ndarray    # uint8 [n, S, S, 3], written
    labels: np.ndarray    # int64 [n], written
    now: np.ndarray       # int64 [1], the image that is being read: whoever watches can name it


class Reader(Protocol):
    """Fills rows; pickles, so that workers can have it."""

    def fill(self, rows: Rows) -> None:
        """Read the images and labels. Raises UnreadableError for the first one that fails."""

    def path(self, index: int) -> str:
        """Return the file of image `index`."""


@dataclass
class TrainReader:
    """Random crops, resized and mirrored: a function of (seed, epoch, index)."""

    files: Files
    crop: TrainCrop
    augment: SampleAugment | None = None
    reduce: bool = True                 # decode JPEGs at a fraction of their size where the crop allows

    def fill(self, rows: Rows) -> None:
        """Crop, resize, mirror and augment the images."""
        pictures = deque(_opened(self.files, index, rows) for index in rows.indices)
        sizes = np.array([(picture.height, picture.width) for picture in pictures])
        boxes, mirrored = self.crop.cuts(rows.epoch, rows.indices, sizes)
        for row in range(len(pictures)):
            rows.now[0] = index = int(rows.indices[row])
            try:
                pixels = pictures.popleft().resized_crop(*boxes[row].tolist(), rows.pixels.shape[1], self.reduce)
            except BadImageError as error:
                raise _unreadable(self.files, index, error) from None
            rows.pixels[row] = self._augmented(pixels[:, ::-1] if mirrored[row] else pixels, rows, row)
        rows.labels[:] = self.files.labels[rows.indices]

    def path(self, index: int) -> str:
        """Return the file of image `index`."""
        return self.files.path(index)

    def _augmented(self, image: np.ndarray, rows: Rows, row: int) -> np.ndarray:
        if self.augment is None:
            return image
        return np.asarray(self.augment(Image.fromarray(image), self.crop.generator(rows.epoch, int(rows.indices[row]))))


@dataclass
class EvalReader:
    """The centre of the whole image, resized to a shorter side of `resize`: torchvision's Resize and CenterCrop."""

    files: Files
    resize: int

    def fill(self, rows: Rows) -> None:
        """Resize and cut the images."""
        side = rows.pixels.shape[1]
        for row, index in enumerate(rows.indices):
            picture = _opened(self.files, index, rows)
            box, top, left = _centre(picture.height, picture.width, self.resize, side)
            try:
                image = resized(picture.crop(*box), *_shorter_side(*box[2:], self.resize))
            except BadImageError as error:
                raise _unreadable(self.files, int(index), error) from None
            rows.pixels[row] = image[0].permute(1, 2, 0).numpy()[top:top + side, left:left + side]
        rows.labels[:] = self.files.labels[rows.indices]

    def path(self, index: int) -> str:
        """Return the file of image `index`."""
        return self.files.path(index)


def fill_skipping(reader: Reader, rows: Rows, examples: int) -> list[int]:
    """Fill the rows; an unreadable image is replaced by the next readable one. Return the indices of the unreadable ones."""
    bad = []
    for row, index in enumerate(rows.indices.tolist()):
        for candidate in range(index, index + min(100, examples)):
            one = np.array([candidate % examples])
            try:
                reader.fill(Rows(one, rows.epoch, rows.pixels[row:row + 1], rows.labels[row:row + 1], rows.now))
                break
            except UnreadableError as error:
                bad.append(error.index)
        else:
            raise UnreadableError(index, f"{reader.path(index)} and the 99 images after it cannot be read: these are not a few bad files")
    return bad


def _opened(files: Files, index: int, rows: Rows) -> Picture:
    """Read one file and its header."""
    rows.now[0] = index
    try:
        return Picture(read_file(files.path(index)))
    except BadImageError as error:
        raise _unreadable(files, int(index), error) from None


def _unreadable(files: Files, index: int, error: BadImageError) -> UnreadableError:
    """Return the error for one image, with what to type."""
    root, split = os.path.split(files.split)
    skip = "data.on_bad_image=skip  replaces bad training images;  " if split == "train" else ""
    return UnreadableError(index, f"{files.path(index)} {error}\n    {skip}resnet-recipes doctor data {shlex.quote(root)}  lists them")


def _centre(height: int, width: int, resize: int, side: int) -> tuple[list[int], int, int]:
    """Return the box to resize to a shorter side of `resize`, and where in the result the centre crop begins: (box, top, left).

    The box is the whole image, or four squares in the middle of one longer than five: a line of 20,000 pixels would else become
    4.6 million by 232. That moves the crop by less than a pixel.
    """
    box, sizes, shorter = [0, 0, height, width], (height, width), min(height, width)
    corner = [round((length - side) / 2) for length in _shorter_side(height, width, resize)]    # half to even, as torchvision
    if (squares := max(sizes) // shorter) > 5:
        axis, before = sizes.index(max(sizes)), squares // 2 - 2
        box[axis], box[axis + 2] = before * shorter, 4 * shorter
        corner[axis] -= before * resize
    return box, *corner


def _shorter_side(height: int, width: int, side: int) -> tuple[int, int]:
    """Return the size of an image whose shorter side becomes `side`; the longer one is rounded down, as torchvision does."""
    if height <= width:
        return side, math.floor(side * width / height)
    return math.floor(side * height / width), side
