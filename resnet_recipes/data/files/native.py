"""Class folders through the native engine: JPEGs are decoded by its threads, whatever else in Python."""

import os

import numpy as np

from resnet_recipes.data.base import SampleAugment
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.files.images import Files
from resnet_recipes.data.files.storage import EvalFiles, FileStorage, TrainFiles
from resnet_recipes.data.loading.storage import Rows
from resnet_recipes.data.native.augmentation import put_steps
from resnet_recipes.data.native.engine import Engine
from resnet_recipes.data.native.library import why_not
from resnet_recipes.data.native.rows import CENTRE, CROP, ROW

#: Below this share of JPEGs the interpreter is the bottleneck, and processes are better than threads.
_MOST = 0.9


def train_files(files: Files, crop: TrainCrop, augment: SampleAugment | None, reduce: bool,
                threads: int) -> FileStorage:
    """Return training images through the engine where it is built and knows the augmentation, else TrainFiles."""
    python = TrainFiles(files, crop, augment, reduce)
    known = augment is None or hasattr(augment, "steps")
    return NativeTrainFiles(files, python, threads) if known and _suits(files) else python


def eval_files(
    files: Files, resize: int, threads: int, kind: type[EvalFiles] = EvalFiles, bicubic: bool = False,
) -> FileStorage:
    """Return evaluation images through the engine where it is there and finds JPEGs, else a `kind`."""
    python = kind(files, resize)
    python.bicubic = bicubic
    return NativeEvalFiles(files, python, threads) if _suits(files) else python


class NativeFiles(FileStorage):
    """Image files of a split; rows that the engine refuses go to `python`, which names what is wrong with them."""

    in_threads = True

    def __init__(self, files: Files, python: FileStorage, threads: int):
        super().__init__(files)
        self._python, self._engine = python, Engine(max(1, threads))
        self._folder = np.frombuffer(os.fsencode(files.split) + b"\0", np.uint8)

    def _fill(self, rows: Rows, wanted: np.ndarray) -> None:
        """Fill the rows as ROW [n] says, which lacks files and pixels."""
        names, starts, wanted["length"], listed = self._files.located(rows.indices)
        wanted["folder"], wanted["path"] = self._folder.ctypes.data, names.ctypes.data + starts
        wanted["file_bytes"] = np.maximum(listed, 0)
        wanted["side"] = rows.pixels.shape[1]
        wanted["pixels"] = rows.pixels.ctypes.data + np.arange(len(wanted)) * rows.pixels.strides[0]
        for row in self._engine.fill(wanted, rows.reading).tolist():
            self._python.fill(Rows(rows.epoch, *(field[row:row + 1] for field in rows[1:])))


class NativeTrainFiles(NativeFiles):
    """TrainFiles with the same crops, draws and augmentation, and pixels within a grey level."""

    _python: TrainFiles

    def fill(self, rows: Rows) -> None:
        """Write the pixels; see Storage."""
        crop, augment, wanted = self._python.crop, self._python.augment, np.zeros(len(rows.indices), ROW)
        tries, wanted["mirror"] = crop.attempts(rows.epoch, rows.indices, rows.copies)
        draws = np.concatenate([tries.reshape(len(wanted), -1), np.tile(crop.ratio, (len(wanted), 1))], axis=1)
        wanted["draws"] = draws.ctypes.data + np.arange(len(wanted)) * draws.strides[0]
        wanted["geometry"], wanted["whole"] = CROP, not self._python.reduce
        wanted["filter"] = crop.bicubic(rows.epoch, rows.indices, rows.copies)
        kept = [draws]
        if augment:
            keys = zip(rows.indices.tolist(), rows.copies.tolist(), strict=True)
            kept += [put_steps(wanted,
                               [augment.steps(rows.pixels.shape[1], crop.generator(rows.epoch, *key)) for key in keys])]
        self._fill(rows, wanted)


class NativeEvalFiles(NativeFiles):
    """EvalFiles with pixels within a grey level."""

    _python: EvalFiles

    def fill(self, rows: Rows) -> None:
        """Write the pixels; see Storage."""
        wanted = np.zeros(len(rows.indices), ROW)
        wanted["geometry"], wanted["resize"], wanted["whole"] = CENTRE, self._python.resize, True
        wanted["filter"] = self._python.bicubic
        self._fill(rows, wanted)


def _suits(files: Files) -> bool:
    """Tell whether the engine is there, and most of the images are JPEGs by their names."""
    some = np.linspace(0, len(files) - 1, min(len(files), 200)).astype(int).tolist()
    jpegs = sum(files.path(index).lower().endswith((".jpg", ".jpeg")) for index in some)
    return not why_not() and jpegs >= _MOST * len(some)
