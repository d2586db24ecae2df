"""Fill rows of a batch from encoded images with the native engine.

Python handles what it refuses.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from resnet_recipes.data.base import SampleAugment
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.images.python import EvalImages, Source, TrainImages
from resnet_recipes.data.loading.storage import Rows
from resnet_recipes.data.native import Engine, why_not
from resnet_recipes.data.native.rows import CENTRE, CROP, DISTORTED, blank_rows, put_steps


def train_images(
    source: Source, crop: TrainCrop, augment: SampleAugment | None, reduce: bool, threads: int
) -> TrainImages:
    """Return training images of the engine if it is built and can augment them, else of Python."""
    if _usable(source) and (augment is None or hasattr(augment, "steps")):
        return NativeTrainImages(threads, source, crop, augment, reduce)
    return TrainImages(source, crop, augment, reduce)


def eval_images(source: Source, resize: int, bicubic: bool, threads: int) -> EvalImages:
    """Return evaluation images of the engine if it is built, else of Python."""
    if _usable(source):
        return NativeEvalImages(threads, source, resize, bicubic)
    return EvalImages(source, resize, bicubic)


class _Native:
    """Images that an engine decodes."""

    in_threads = True

    def __init__(self, threads: int, *settings: Any):
        super().__init__(*settings)
        self._engine = Engine(max(1, threads))


class NativeTrainImages(_Native, TrainImages):
    """TrainImages with the same crops, draws and augmentation, and pixels within a grey level."""

    def fill(self, rows: Rows) -> None:
        """Write the pixels; see Storage."""
        crop, wanted = self.crop, blank_rows(len(rows.indices))
        draws, wanted["mirror"] = crop.attempts(rows.epoch, rows.indices, rows.copies)
        wanted["draws"] = draws.ctypes.data + np.arange(len(wanted)) * draws.strides[0]
        wanted["geometry"] = DISTORTED if crop.rule == "tensorflow" else CROP
        wanted["whole"] = not self.reduce
        wanted["filter"] = crop.bicubic(rows.epoch, rows.indices, rows.copies)
        kept = [draws]
        if self.augment:
            side, keys = rows.pixels.shape[1], zip(rows.indices, rows.copies, strict=True)
            rngs = [crop.generator(rows.epoch, int(index), int(copy)) for index, copy in keys]
            kept.append(put_steps(wanted, [self.augment.steps(side, rng) for rng in rngs]))
        _fill(self._engine, self.source, rows, wanted, super().fill)


class NativeEvalImages(_Native, EvalImages):
    """EvalImages with pixels within a grey level."""

    def fill(self, rows: Rows) -> None:
        """Write the pixels; see Storage."""
        wanted = blank_rows(len(rows.indices))
        wanted["geometry"], wanted["resize"], wanted["whole"] = CENTRE, self.resize, True
        wanted["filter"] = self.bicubic
        _fill(self._engine, self.source, rows, wanted, super().fill)


def _fill(
    engine: Engine,
    source: Source,
    rows: Rows,
    wanted: np.ndarray,
    in_python: Callable[[Rows], None],
) -> None:
    """Fill the rows as the engine's rows `wanted` say, which lack images and pixels.

    Python reports what is wrong with refused ones.
    """
    source.locate(rows.indices, wanted)
    wanted["side"] = rows.pixels.shape[1]
    wanted["pixels"] = rows.pixels.ctypes.data + np.arange(len(wanted)) * rows.pixels.strides[0]
    refused = engine.fill(wanted, rows.reading)
    source.mark_verified(rows.indices[~wanted["checked"]])  # others were read from a small level
    for row in refused.tolist():
        in_python(rows.only(row))


def _usable(source: Source) -> bool:
    """Return whether the engine is available and decodes most images.

    Otherwise processes beat threads.
    """
    return not why_not() and source.mostly_jpeg
