"""Soft labels: a file with a teacher's outputs for every training image.

The .safetensors file has three tensors. `values` and `classes`, [epochs, copies, images, k], are
the k largest of K outputs for one crop each. They are logits in float32 if k = K, else log
probabilities in float16. `sha256`, [epochs, 32], is a digest of each epoch, or zeros if it is
incomplete.
"""

import fcntl
import hashlib
import json
import os
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.base.errors import Command, NotReadyError
from resnet_recipes.base.reading import make_read_error
from resnet_recipes.data.base import SoftLabels
from resnet_recipes.data.loading.storage import Rows, Storage
from resnet_recipes.data.tensors import read_tensors

TEACH_COMMAND = Command("resnet-recipes teach NAME data=PATH methods.distill.teacher=T")

#: Error message for a file with other tensors or metadata.
FOREIGN_FILE_CLAUSE = "`resnet-recipes teach` did not write it, or another version did"

#: Minimum probability of the outputs that are not kept, because rounding could leave none.
_MIN_PROBABILITY = 1e-6


class SoftLabelStorage:
    """A storage that also fills in a teacher's probabilities."""

    def __init__(self, storage: Storage, soft_labels: SoftLabels):
        self.labels, self.in_threads, self.path = storage.labels, storage.in_threads, storage.path
        self._storage, self._soft_labels = storage, soft_labels
        self._arrays = _open_checked(soft_labels)

    def __reduce__(self) -> tuple:
        # a mapping would be pickled as its bytes
        return SoftLabelStorage, (self._storage, self._soft_labels)

    def fill(self, rows: Rows) -> None:
        self._storage.fill(rows)
        index = rows.crop_epoch, rows.copies, rows.indices
        values = self._arrays.values[index]
        classes = self._arrays.classes[index]
        spread_probabilities(values, classes, self._soft_labels.temperature, rows.soft_labels)


def _open_checked(soft_labels: SoftLabels) -> "SoftLabelArrays":
    """Map a file, which must still have the checksum of the check before the run."""
    try:
        arrays = map_soft_labels(soft_labels.path).arrays
        if arrays.checksum != soft_labels.checksum:
            raise ValueError("it was replaced after it was checked")
    except (OSError, ValueError) as error:
        raise make_read_error(soft_labels.path, error) from None
    return arrays


class TopOutputs(NamedTuple):
    """The largest outputs of a batch and their classes, [n, count]."""

    values: Tensor
    classes: Tensor


def choose_outputs(logits: Tensor, count: int) -> TopOutputs:
    """Return the outputs to store for the logits [n, K] of a batch."""
    values = logits if count == logits.shape[1] else logits.log_softmax(1)
    return TopOutputs(*values.topk(count))


def spread_probabilities(
    values: np.ndarray, classes: np.ndarray, temperature: float, out: np.ndarray
) -> None:
    """Write probabilities [n, K] from stored outputs [n, k], at a temperature.

    With all outputs, they are bit-identical to torch softmax; else the other classes share the
    remaining probability equally.
    """
    rows = np.arange(len(out))[:, None]
    values = values.astype(np.float32)
    if others := out.shape[1] - values.shape[1]:
        probabilities = np.exp(values)
        rest = np.maximum(1 - probabilities.sum(1, keepdims=True), _MIN_PROBABILITY) / others
        probabilities = probabilities ** (1 / temperature)
        rest = rest ** (1 / temperature)
        total = probabilities.sum(1, keepdims=True) + others * rest
        out[:] = rest / total
        out[rows, classes] = probabilities / total
    else:
        out[rows, classes] = values / temperature
        out[:] = torch.softmax(torch.from_numpy(out), 1)


class SoftLabelArrays(NamedTuple):
    """The tensors of a file, mapped."""

    values: np.ndarray
    classes: np.ndarray
    sha256: np.ndarray

    @property
    def checksum(self) -> str:
        """The digest of the digests of all epochs."""
        return hashlib.sha256(self.sha256.tobytes()).hexdigest()

    def digest(self, epoch: int) -> np.ndarray:
        """Return the digest of an epoch, uint8 [32]."""
        digest = hashlib.sha256(self.values[epoch].ravel())
        digest.update(self.classes[epoch].ravel())
        return np.frombuffer(digest.digest(), np.uint8)

    def find_missing_epochs(self) -> list[int]:
        """Return the incomplete epochs. Reads the complete epochs, 1 s per GB."""
        return [
            epoch
            for epoch, digest in enumerate(self.sha256)
            if not digest.any() or (digest != self.digest(epoch)).any()
        ]

    def check(self, shape: tuple[int, int, int], classes: int) -> None:
        """Raise ValueError unless these are complete outputs of `shape` [epochs, copies, images].

        The message is a phrase for the user.
        """
        count = (0, *self.values.shape)[-1]
        layout = {name: (part.dtype, part.shape) for name, part in self._asdict().items()}
        if (
            not self.values.size
            or count > classes
            or layout != make_layout((*shape, count), classes)
        ):
            raise ValueError("its tensors do not belong to these images")
        if self.find_missing_epochs():
            raise ValueError("it was changed after it was written")
        # a float64 sum is finite if all values are and needs no memory
        if not np.isfinite(self.values.sum(dtype=np.float64)) or self.classes.max() >= classes:
            raise ValueError("it has outputs that are not finite numbers, or of no class")


def make_layout(shape: tuple[int, int, int, int], classes: int) -> dict[str, Any]:
    """Return dtype and shape of the tensors, by name.

    `shape` is [epochs, copies, images, k], `classes` K.
    """
    return {
        "values": (np.dtype("f4" if shape[-1] == classes else "f2"), shape),
        "classes": (np.min_scalar_type(classes - 1), shape),
        "sha256": (np.dtype("u1"), (shape[0], 32)),
    }


class SoftLabelsFile(NamedTuple):
    """A file of outputs, mapped into memory."""

    arrays: SoftLabelArrays
    about: dict[str, str]  # images and settings that the outputs belong to


def map_soft_labels(path: Path, mode: Literal["r", "r+"] = "r") -> SoftLabelsFile:
    """Map a file into memory.

    Raises ValueError, with a phrase for the user, if it has other contents, OSError if it cannot be
    read.
    """
    tensors, about = read_tensors(path)
    start = os.path.getsize(path)
    parts = []
    try:
        for name in reversed(SoftLabelArrays._fields):
            part = tensors[name].numpy()
            start -= part.nbytes
            parts.append(np.asarray(np.memmap(path, part.dtype, mode, start, part.shape)))
        return SoftLabelsFile(SoftLabelArrays(*reversed(parts)), about)
    except (KeyError, TypeError):
        raise ValueError(FOREIGN_FILE_CLAUSE) from None


class FileStart(NamedTuple):
    """The start of a file of outputs."""

    header: bytes
    size: int  # bytes of the complete file


def make_header(about: dict[str, str], shape: tuple[int, int, int, int], classes: int) -> FileStart:
    """Return the start of a file; see `make_layout`."""
    header: dict[str, Any] = {"__metadata__": about}
    start = end = 0
    for name, (dtype, size) in make_layout(shape, classes).items():
        start = end
        end = end + prod(size) * dtype.itemsize
        code = f"{dtype.kind.upper()}{8 * dtype.itemsize}"
        header[name] = {"dtype": code, "shape": size, "data_offsets": [start, end]}
    text = json.dumps(header)
    text += " " * (-len(text) % 8)
    first = len(text).to_bytes(8, "little") + text.encode()
    return FileStart(first, len(first) + end)


def open_for_writing(part: Path, first: bytes, size: int) -> BinaryIO:
    """Create a file with all its disk space, or continue it, and lock it.

    Raises NotReadyError if another command uses it, or was started with other settings, OSError if
    it cannot be written.
    """
    part.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        file = os.fdopen(handle, "r+b")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if first.startswith(file.read(len(first))):
            os.pwrite(handle, first, 0)
            os.posix_fallocate(handle, 0, size)
            os.truncate(handle, size)
            return file
        clause = (
            "was started with other settings or another teacher: delete it, or choose another name"
        )
    except BlockingIOError:
        clause = "is being written by another command: wait, or choose another name"
    except OSError as error:
        error.filename = part
        raise
    raise NotReadyError.of("--out", part, clause, "--out other.safetensors")
