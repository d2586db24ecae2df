"""What a teacher said of every training image: a file that stands in for the teacher.

A row for each epoch, copy and index, so that it belongs to one crop of one image. Of each row the k
largest of K outputs are kept; the rest of the probability is spread evenly.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.reading import open_regular, read_json, unreadable
from resnet_recipes.data.base import Outputs
from resnet_recipes.data.loading.storage import Rows, Storage

#: The least probability that is left for outputs that are not kept: rounding could leave none.
_LEAST = 1e-6

_TYPES = {"classes": int, "kept": int, "shape": list, "made": dict, "sha256": list, "teacher": str}


@dataclass(frozen=True)
class Stored:
    """A file of a teacher's outputs, and the temperature of the softmax that is asked of it."""

    path: Path
    epochs: int  # after these, the first follows again
    classes: int  # K
    temperature: float = 1.0

    def fill(self, rows: Rows) -> None:
        """Write `rows.taught`, float32 [n, K]: the teacher's probabilities."""
        found = _rows(self.path)[rows.epoch, rows.copies, rows.indices]
        logits = outputs(found["classes"], found["values"], self.classes)
        rows.taught[:] = torch.softmax(logits / self.temperature, 1).numpy()


class Taught:
    """A storage whose rows come with what the teacher said of them."""

    def __init__(self, storage: Storage, stored: Outputs):
        self.labels, self.in_threads, self.path = storage.labels, storage.in_threads, storage.path
        self._parts = storage, stored

    def fill(self, rows: Rows) -> None:
        """Write pixels and outputs. Raises UnreadableError."""
        for part in self._parts:
            part.fill(rows)


def outputs(classes: np.ndarray, values: np.ndarray, count: int) -> Tensor:
    """Return float32 [n, count] logits of kept outputs [n, k], of these classes.

    If all are kept, these are the teacher's own; else the kept ones are logarithms of
    probabilities, and the others share what is left.
    """
    values = values.astype(np.float32)
    found = np.empty((len(values), count), np.float32)
    if (others := count - values.shape[1]) > 0:
        left = np.maximum(1 - np.exp(values).sum(1), _LEAST)
        found[:] = np.log(left / others)[:, None]
    np.put_along_axis(found, classes.astype(np.int64), values, 1)
    return torch.from_numpy(found)


def row_type(kept: int, classes: int, exact: bool) -> np.dtype:
    """Return the type of a row: `kept` classes and their values, float32 if `exact`."""
    index = "<u2" if classes <= 1 << 16 else "<u4"
    return np.dtype([("classes", index, (kept,)), ("values", "<f4" if exact else "<f2", (kept,))])


def kept_rows(logits: Tensor, kind: np.dtype) -> np.ndarray:
    """Return a batch of logits [n, K] as rows of this type."""
    kept, classes = kind["classes"].shape[0], logits.shape[1]
    values = logits if kept == classes else logits.log_softmax(1)
    best = values.topk(kept)
    rows = np.empty(len(logits), kind)
    rows["classes"], rows["values"] = best.indices.cpu().numpy(), best.values.cpu().numpy()
    return rows


class Writer:
    """A file that ranks write together, an epoch at a time; a later one goes on with it.

    It has its name with `.part` until it is whole. Raises OSError.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], kind: np.dtype):
        self.kind = kind
        self._path, self._about = path, dict(about)
        self._part = path.with_name(f"{path.name}.part")
        self._shape: tuple[int, int, int] = tuple(about["shape"])

    @property
    def epochs(self) -> int:
        """Epochs of the file."""
        return self._shape[0]

    @property
    def bytes(self) -> int:
        """Size of the file, without its header."""
        return math.prod(self._shape) * self.kind.itemsize

    @property
    def written(self) -> int:
        """Bytes that were written before: the room that is taken already."""
        return self._part.stat().st_size if self._part.exists() else 0

    def images(self, epoch: int, copy: int, done: int) -> tuple[int, int]:
        """Return how many images are done, and how many there are, in all epochs."""
        return (epoch * self._shape[1] + copy) * self._shape[2] + done, math.prod(self._shape)

    def begin(self) -> int:
        """Create the file, or find what was written before; return how many epochs are whole.

        Raises NotReadyError if it was begun with other settings.
        """
        if self._part.exists():
            found = described(self._part)
            self._about["sha256"] = found["sha256"]
            if found != self._about:
                rule = "was begun by another command"
                raise NotReadyError.of("--out", str(self._part), rule, f"rm {self._part}*")
        else:
            self._about["sha256"] = []
            np.lib.format.open_memmap(self._part, "w+", self.kind, self._shape).flush()
            self._describe(self._part)
        return len(self._about["sha256"])

    def write(self, epoch: int, copy: int, first: int, rows: np.ndarray) -> None:
        """Write the rows of images from `first` on."""
        before = np.ravel_multi_index((epoch, copy, first), self._shape) * self.kind.itemsize
        with self._part.open("r+b") as file:
            start = os.fstat(file.fileno()).st_size - self.bytes  # after NumPy's header
            os.pwrite(file.fileno(), rows.tobytes(), start + int(before))

    def finish(self, epoch: int) -> None:
        """Record that an epoch is whole; the last one gives the file its name."""
        with self._part.open("r+b") as file:
            os.fsync(file.fileno())
        self._about["sha256"].append(_digest(_mapped(self._part)[epoch]))
        self._describe(self._part)
        if epoch + 1 == self._shape[0]:
            self._describe(self._path)
            self._part.rename(self._path)
            _sidecar(self._part).unlink()

    def _describe(self, path: Path) -> None:
        atomic.write_text(_sidecar(path), json.dumps(self._about, indent=1) + "\n")


def described(path: Path) -> dict[str, Any]:
    """Return what is known of a file of outputs. Raises NotReadyError if it is none."""
    found = read_json(_sidecar(path))
    kinds = {key: type(value) for key, value in found.items()}
    shape = found.get("shape", ())
    if kinds != _TYPES or len(shape) != 3 or not all(_is_count(size) for size in shape):
        raise unreadable(_sidecar(path), ValueError("not written by `resnet-recipes teach`"))
    return found


def checked(path: Path) -> None:
    """Read the whole file, and compare it with its digests; 1 s for each GB.

    Raises NotReadyError if it was cut short, changed, or has no finite numbers.
    """
    about = described(path)
    try:
        with open_regular(path):
            rows = _mapped(path)
        _refuse(rows, about, path.stat().st_size)
    except (OSError, ValueError, EOFError) as error:
        raise unreadable(path, error if isinstance(error, OSError) else _plain(error)) from None


def _refuse(rows: np.ndarray, about: Mapping[str, Any], size: int) -> None:
    """Raise ValueError, with a phrase for the user, for rows that are not as they were written."""
    kinds = [row_type(about["kept"], about["classes"], exact) for exact in (False, True)]
    if rows.dtype not in kinds or list(rows.shape) != about["shape"]:
        raise ValueError("has other rows than its .json file says")
    if not 0 < about["kept"] <= about["classes"] or size < rows.nbytes:
        raise ValueError("is cut short")
    if len(about["sha256"]) != len(rows):
        raise ValueError("is not whole: repeat the command that writes it")
    for epoch, digest in zip(rows, about["sha256"], strict=True):
        if _digest(epoch) != digest:
            raise ValueError("was changed after it was written")
        if not np.isfinite(epoch["values"]).all() or epoch["classes"].max() >= about["classes"]:
            raise ValueError("has outputs that are not finite numbers, or of no class")


def _is_count(size: object) -> bool:
    return type(size) is int and 0 < size < 1 << 40


def _plain(error: Exception) -> ValueError:
    """Return an error with one line for the user; NumPy's have several, on its file format."""
    text = str(error)
    return ValueError(text if text.startswith(("has", "is", "was")) else "not a NumPy file")


def _digest(rows: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()


def _sidecar(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _mapped(path: Path) -> np.ndarray:
    """Map a file of rows. Raises ValueError if it is none, or too short."""
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(rows, np.memmap):
        raise ValueError("not a NumPy file")
    return rows


_rows = cache(_mapped)
