"""Fill rows of a batch from encoded images with the native engine; Python handles what it refuses."""

import numpy as np

from resnet_recipes.data.base import SampleAugment
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.images.python import EvalImages, Images, TrainImages
from resnet_recipes.data.images.source import Source
from resnet_recipes.data.loading.storage import Rows
from resnet_recipes.data.native import engine
from resnet_recipes.data.native.library import description, why_not
from resnet_recipes.data.native.rows import CENTRE, CROP, DISTORTED, ROW, put_steps


def train_images(source: Source, crop: TrainCrop, augment: SampleAugment | None, reduce: bool) -> Images:
    """Return training images of the engine if it is built and supports the augmentation, else TrainImages."""
    python = TrainImages(source, crop, augment, reduce)
    known = augment is None or hasattr(augment, "steps")
    return NativeTrainImages(python) if known and _usable(source) else python


def eval_images(source: Source, resize: int, bicubic: bool, kind: type = EvalImages) -> Images:
    """Return evaluation images of the engine if it is built, else a `kind`."""
    python = kind(source, resize, bicubic)
    return NativeEvalImages(python) if _usable(source) else python


def manner() -> str:
    """Return a note about how JPEGs are decoded on this machine."""
    if why := why_not():
        return f"JPEGs are decoded in Python, at about half the speed: the native decoder {why}; " \
               "resnet-recipes doctor native"
    return f"JPEGs are decoded natively ({description()})"


class NativeImages(Images):
    """Images of a split; rows that the engine refuses go to `python`, which reports what is wrong with them."""

    in_threads = True

    def __init__(self, python: Images):
        super().__init__(python.source)
        self._python = python

    def _fill(self, rows: Rows, wanted: np.ndarray) -> None:
        """Fill the rows as ROW [n] says, which lacks images and pixels."""
        self.source.locate(rows.indices, wanted)
        wanted["side"] = rows.pixels.shape[1]
        wanted["pixels"] = rows.pixels.ctypes.data + np.arange(len(wanted)) * rows.pixels.strides[0]
        refused = engine.fill(wanted, rows.reading)
        self.source.note_intact(np.delete(rows.indices, refused))
        for row in refused.tolist():
            self._python.fill(rows.only(row))


class NativeTrainImages(NativeImages):
    """TrainImages with the same crops, draws and augmentation, and pixels within a grey level."""

    _python: TrainImages

    def fill(self, rows: Rows) -> None:
        """Write the pixels; see Storage."""
        crop, augment, wanted = self._python.crop, self._python.augment, np.zeros(len(rows.indices), ROW)
        draws, wanted["mirror"] = crop.attempts(rows.epoch, rows.indices, rows.copies)
        wanted["draws"] = draws.ctypes.data + np.arange(len(wanted)) * draws.strides[0]
        wanted["geometry"] = DISTORTED if crop.rule == "tensorflow" else CROP
        wanted["whole"] = not self._python.reduce
        wanted["filter"] = crop.bicubic(rows.epoch, rows.indices, rows.copies)
        kept = [draws]
        if augment:
            keys = zip(rows.indices.tolist(), rows.copies.tolist(), strict=True)
            kept += [put_steps(wanted,
                               [augment.steps(rows.pixels.shape[1], crop.generator(rows.epoch, *key)) for key in keys])]
        self._fill(rows, wanted)


class NativeEvalImages(NativeImages):
    """EvalImages with pixels within a grey level."""

    _python: EvalImages

    def fill(self, rows: Rows) -> None:
        """Write the pixels; see Storage."""
        wanted = np.zeros(len(rows.indices), ROW)
        wanted["geometry"], wanted["resize"], wanted["whole"] = CENTRE, self._python.resize, True
        wanted["filter"] = self._python.bicubic
        self._fill(rows, wanted)


def _usable(source: Source) -> bool:
    """Return whether the engine is available and decodes most images; otherwise processes beat threads."""
    return not why_not() and source.suits_engine
