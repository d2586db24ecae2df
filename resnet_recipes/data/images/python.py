"""Fill rows of a batch from encoded images in Python, or prepare them for the native decoder."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np
from PIL import Image

from resnet_recipes.augment import ImageAugment
from resnet_recipes.base.errors import (
    BadTrainingImageError,
    BadValidationImageError,
    Fix,
    TrainingError,
)
from resnet_recipes.data.base import MEAN, DataConfig, Mean
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.images.decode import BadImageError, Pixels, resize_exactly
from resnet_recipes.data.loading.storage import Rows, UnreadableError
from resnet_recipes.data.native.rows import CENTER, CROP, DISTORTED, make_blank_rows, put_operations


class LabeledImages(Protocol):
    """Labeled images; picklable, because workers may be processes."""

    @property
    def labels(self) -> np.ndarray:
        """The label of each image, int64 [N]."""

    def path(self, index: int) -> str:
        """Return the name of image `index` for messages."""

    def read(self, index: int) -> Pixels:
        """Read image `index`.

        Raises BadImageError if it is not an image, and ChangedError if its file has changed.
        """


class Source(LabeledImages, Protocol):
    """The images of one split, for Python and for the native decoder."""

    @property
    def is_mostly_jpeg(self) -> bool:
        """Whether most of the images are JPEGs, which the native decoder reads."""

    @property
    def can_skip(self) -> bool:
        """Whether data.on_bad_image=skip applies to the images."""

    def __len__(self) -> int:
        """Return the number of images."""

    def fix(self) -> Fix:
        """Return the fix for an unreadable image."""

    def locate(self, indices: np.ndarray, decoder_rows: np.ndarray) -> None:
        """Point the native decoder's rows [n] to the images, in memory that this source keeps."""

    def mark_verified(self, indices: np.ndarray) -> None:
        """Record that the checksums of these images need not be checked again."""


class DecoderRows(NamedTuple):
    """Rows for the native decoder, without input images and output pixels."""

    rows: np.ndarray
    memory: Sequence[np.ndarray] = ()  # arrays that the rows point to


class PythonRows:
    """The base class of training and evaluation images."""

    in_threads = False
    #: Error that ends the run if an image is damaged.
    ends_with: type[TrainingError] = BadValidationImageError
    suits_decoder: bool  # whether the native decoder supports everything that these images need

    def __init__(self, source: Source):
        self.source, self.labels = source, source.labels

    def path(self, index: int) -> str:
        return self.source.path(index)

    def open(self, rows: Rows, row: int) -> Pixels:
        """Read one image, or the header of its file.

        Raises UnreadableError if it is not an image.
        """
        with self._mark_reading(rows, row):
            return self.source.read(int(rows.indices[row]))

    @contextmanager
    def _mark_reading(self, rows: Rows, row: int) -> Iterator[None]:
        """Mark one image as being read; if it is bad, report it with a fix."""
        rows.reading[:] = False
        rows.reading[row] = True
        try:
            yield
        except BadImageError as error:
            index = int(rows.indices[row])
            # a disk that does not respond may do so when the run resumes
            error_class = TrainingError if isinstance(error.__cause__, OSError) else self.ends_with
            failure = error_class(f"{self.path(index)} {error}", self.source.fix())
            raise UnreadableError(index, failure, str(error)) from None


class TrainImages(PythonRows):
    """Random crops, resized, flipped and augmented: a function of (seed, epoch, index, copy)."""

    def __init__(
        self,
        source: Source,
        crop: TrainCrop,
        augment: ImageAugment | None = None,
    ):
        super().__init__(source)
        self.ends_with = BadTrainingImageError if source.can_skip else TrainingError
        self.crop, self.augment, self.reduce = crop, augment, crop.config.reduced_decode
        self.suits_decoder = augment is None or hasattr(augment, "sample_operations")

    def fill(self, rows: Rows) -> None:
        pictures = deque(self.open(rows, row) for row in range(len(rows.indices)))
        sizes = np.array([(picture.height, picture.width) for picture in pictures])
        crops = self.crop.sample_boxes(rows, sizes)
        bicubic = self.crop.choose_bicubic(rows)
        for row in range(len(pictures)):
            with self._mark_reading(rows, row):
                how = rows.pixels.shape[1], self.reduce, bool(bicubic[row])
                pixels = pictures.popleft().resized_crop(crops.numbers[row].tolist(), *how)
            if crops.flipped[row]:
                pixels = pixels[:, ::-1]
            if self.augment:
                rng = self.crop.generator(rows, row)
                pixels = np.asarray(self.augment(Image.fromarray(pixels), rng))
            rows.pixels[row] = pixels

    def make_decoder_rows(self, rows: Rows) -> DecoderRows:
        """Return the native decoder's rows, without input images and output pixels."""
        crop = self.crop
        decoder_rows = make_blank_rows(len(rows.indices))
        crops = crop.sample_attempts(rows)
        numbers, decoder_rows["mirror"] = crops.numbers, crops.flipped
        decoder_rows["draws"] = (
            numbers.ctypes.data + np.arange(len(decoder_rows)) * numbers.strides[0]
        )
        decoder_rows["geometry"] = DISTORTED if crop.is_distorted else CROP
        decoder_rows["full_size"] = not self.reduce
        decoder_rows["filter"] = crop.choose_bicubic(rows)
        arrays = [numbers]
        if self.augment:
            image_size = rows.pixels.shape[1]
            operations = [
                self.augment.sample_operations(image_size, crop.generator(rows, row))
                for row in range(len(decoder_rows))
            ]
            arrays.append(put_operations(decoder_rows, operations))
        return DecoderRows(decoder_rows, arrays)


class EvalImages(PythonRows):
    """The center of an image that is resized to a shorter side of `data.eval_resize`.

    Matches torchvision Resize and CenterCrop, also in the native decoder. `data.fit` selects
    others.
    """

    def __init__(self, source: Source, config: DataConfig):
        super().__init__(source)
        self.resize, self.fit, self.mean = config.eval_resize, config.fit, config.mean
        self.bicubic = config.eval_interpolation == "bicubic"
        self.suits_decoder = config.fit == "crop"

    def fill(self, rows: Rows) -> None:
        image_size = rows.pixels.shape[1]
        for row in range(len(rows.indices)):
            picture = self.open(rows, row)
            with self._mark_reading(rows, row):
                rows.pixels[row] = crop_center(
                    picture, self.resize, image_size, self.bicubic, self.fit, self.mean
                )

    def make_decoder_rows(self, rows: Rows) -> DecoderRows:
        decoder_rows = make_blank_rows(len(rows.indices))
        decoder_rows["geometry"] = CENTER
        decoder_rows["resize"] = self.resize
        decoder_rows["full_size"] = True
        decoder_rows["filter"] = self.bicubic
        return DecoderRows(decoder_rows)


def crop_center(
    picture: Pixels,
    resize: int,
    image_size: int,
    bicubic: bool = False,
    fit: str = "crop",
    mean: Mean = MEAN,
) -> np.ndarray:
    """Return the center of an image whose shorter side becomes `resize`.

    The result is uint8 [image_size, image_size, 3]. With `fit` "squash" both sides become `resize`.
    With "pad" the longer side becomes `resize`, and the rest of the square has the color `mean`.
    These are the timm crop modes "squash" and "border". Raises BadImageError if the image cannot be
    decoded.
    """
    sizes = picture.height, picture.width
    if fit == "crop":
        box, top, left = _find_center_box(*sizes, resize, image_size)
        image = resize_exactly(picture.crop(*box), *_scale_shorter_side(*box[2:], resize), bicubic)
        return image[top : top + image_size, left : left + image_size]
    height, width = resize, resize
    if fit == "pad":
        # timm computes in this order, and rounds half to even
        height, width = (max(1, round(size / (max(sizes) / resize))) for size in sizes)
    image = resize_exactly(picture.pixels(), height, width, bicubic)
    rows, kept_rows = _find_middle(height, image_size)
    columns, kept_columns = _find_middle(width, image_size)
    square = np.tile(np.rint(mean).astype(np.uint8), (image_size, image_size, 1))
    square[rows, columns] = image[kept_rows, kept_columns]
    return square


def _find_middle(length: int, image_size: int) -> tuple[slice, slice]:
    """Return the middle of a line as slices of `image_size` output pixels and of the line."""
    length_used = min(length, image_size)
    to = max(0, image_size - length) // 2
    first = round(max(0, length - image_size) / 2)
    return slice(to, to + length_used), slice(first, first + length_used)


def _find_center_box(
    height: int, width: int, resize: int, image_size: int
) -> tuple[list[int], int, int]:
    """Return the box to resize, and the corner of the center crop: (box, top, left).

    The box is the full image, or its middle if the image is six squares long or more. Otherwise a
    line of 20,000 pixels would become 4.6 million by 232. The crop moves by less than a pixel.
    """
    box = [0, 0, height, width]
    sizes = (height, width)
    shorter = min(height, width)
    resized = _scale_shorter_side(height, width, resize)
    # round to even at a half, as torchvision does
    corner = [round((length - image_size) / 2) for length in resized]
    if (squares := max(sizes) // shorter) > 5:
        axis = sizes.index(max(sizes))
        before = squares // 2 - 2
        box[axis] = before * shorter
        box[axis + 2] = 4 * shorter
        corner[axis] -= before * resize
    return box, *corner


def _scale_shorter_side(height: int, width: int, side: int) -> tuple[int, int]:
    """Return the size with this shorter side; the longer is rounded down, as in torchvision."""
    shorter = min(height, width)
    return side * height // shorter, side * width // shorter
