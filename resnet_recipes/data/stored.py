"""What a teacher said of every training image: a file that stands in for the teacher.

A .safetensors file of three tensors. `values` and `classes`, [epochs, copies, images, k], are the k
largest of K outputs for one crop each: logits in float32 if k = K, else logarithms of probabilities
in float16. `sha256`, [epochs, 32], has a digest of each epoch, or zeros before it is whole.
"""

import fcntl
import hashlib
import json
import os
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.reading import parse_json
from resnet_recipes.data.base import Stored
from resnet_recipes.data.loading.storage import Rows, Storage
from resnet_recipes.data.tensors import read_tensors

#: Dtype and shape of tensors, by name.
Layout = dict[str, tuple[np.dtype, tuple[int, ...]]]

#: The least probability that is left for outputs that are not kept: rounding could leave none.
_LEAST = 1e-6


class Taught:
    """A storage whose rows come with what a teacher said of them."""

    def __init__(self, storage: Storage, stored: Stored):
        self.labels, self.in_threads, self.path = storage.labels, storage.in_threads, storage.path
        self._storage, self._stored = storage, stored

    def fill(self, rows: Rows) -> None:
        """Write pixels and the teacher's probabilities. Raises UnreadableError."""
        self._storage.fill(rows)
        values, classes, _ = self._outputs
        place = rows.epoch, rows.copies, rows.indices
        spread(values[place], classes[place], self._stored.temperature, rows.taught)

    @cached_property
    def _outputs(self) -> "Outputs":
        """The file, mapped by each process when it fills its first rows."""
        return read(self._stored.path)[0]


def kept(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return values and classes, [n, count], of what is stored of a batch's logits [n, K]."""
    values = logits if count == logits.shape[1] else logits.log_softmax(1)
    return values.topk(count)


def spread(values: np.ndarray, classes: np.ndarray, temperature: float, out: np.ndarray) -> None:
    """Write probabilities [n, K] of outputs [n, k] that were kept, at a temperature.

    If all are kept, these are the bits of torch's softmax; else the others share what is left.
    """
    values = values.astype(np.float32)
    if others := out.shape[1] - values.shape[1]:
        left = 1 - np.exp(values).sum(1, keepdims=True)
        out[:] = np.log(np.maximum(left, _LEAST) / others)
    np.put_along_axis(out, classes, values, 1)
    logits = torch.from_numpy(out)
    logits.copy_(torch.softmax(logits / temperature, 1))


class Outputs(NamedTuple):
    """The tensors of a file, mapped."""

    values: np.ndarray
    classes: np.ndarray
    sha256: np.ndarray

    def digest(self, epoch: int) -> np.ndarray:
        """Return the digest of an epoch, uint8 [32]."""
        found = hashlib.sha256(self.values[epoch].ravel())
        found.update(self.classes[epoch].ravel())
        return np.frombuffer(found.digest(), np.uint8)

    def missing(self) -> list[int]:
        """Return the epochs that are not whole. Reads all outputs, 1 s for each GB."""
        return [
            epoch
            for epoch, digest in enumerate(self.sha256)
            if not np.array_equal(digest, self.digest(epoch))
        ]

    def check(self, shape: tuple[int, int, int], classes: int) -> None:
        """Raise ValueError unless these are outputs of `shape` [epochs, copies, images], all whole.

        Has a phrase for the user.
        """
        count = (0, *self.values.shape)[-1]
        found = {name: (part.dtype, part.shape) for name, part in self._asdict().items()}
        if found != layout((*shape, count), classes) or not self.values.size or count > classes:
            raise ValueError("its tensors do not belong to these images")
        if self.missing():
            raise ValueError("it was changed after it was written")
        # a sum in float64 is finite if all are, and needs no memory
        if not np.isfinite(self.values.sum(dtype=np.float64)) or self.classes.max() >= classes:
            raise ValueError("it has outputs that are not finite numbers, or of no class")


def layout(shape: tuple[int, int, int, int], classes: int) -> Layout:
    """Return the tensors of outputs of `shape` [epochs, copies, images, k] of K `classes`."""
    return {
        "values": (np.dtype("f4" if shape[-1] == classes else "f2"), shape),
        "classes": (np.min_scalar_type(classes - 1), shape),
        "sha256": (np.dtype("u1"), (shape[0], 32)),
    }


def read(path: Path) -> tuple[Outputs, str, dict[str, Any]]:
    """Map a file; return its outputs, who its teacher was, and what it was made for.

    Raises OSError, or ValueError with a phrase for the user.
    """
    tensors, metadata = read_tensors(path)
    try:
        outputs = Outputs(*(tensors[name].numpy() for name in Outputs._fields))
        return outputs, metadata["teacher"], {**parse_json(metadata["made_for"])}
    except (KeyError, TypeError):
        rule = "it was not written by `resnet-recipes teach`, or by another version of it"
        raise ValueError(rule) from None


def begun(part: Path) -> Outputs:
    """Map a file that `Blank.begin` has made, to be written."""
    found, parts = read(part)[0], []
    start = part.stat().st_size - sum(one.nbytes for one in found)
    for one in found:
        parts.append(np.memmap(part, one.dtype, "r+", start, one.shape))
        start += one.nbytes
    return Outputs(*parts)


class Blank:
    """A file before its outputs are known. Until then its name ends in `.part`."""

    def __init__(self, path: Path, metadata: dict[str, str], tensors: Layout):
        self.path, self.part = path, path.with_name(f"{path.name}.part")
        header: dict[str, Any] = {"__metadata__": metadata}
        start = end = 0
        for name, (dtype, shape) in tensors.items():
            start, end = end, end + prod(shape) * dtype.itemsize
            code = f"{dtype.kind.upper()}{8 * dtype.itemsize}"
            header[name] = {"dtype": code, "shape": shape, "data_offsets": [start, end]}
        text = json.dumps(header)
        text += " " * (-len(text) % 8)
        self._header = len(text).to_bytes(8, "little") + text.encode()
        self.bytes = len(self._header) + end

    def begin(self) -> BinaryIO:
        """Create the file with all its room, or go on with it; others cannot while it is open.

        Raises NotReadyError if it is that of another command, OSError if it cannot be written.
        """
        self.part.parent.mkdir(parents=True, exist_ok=True)
        # neither follows a link nor waits for a pipe
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.fdopen(os.open(self.part, flags, 0o666), "r+b")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._header.startswith(file.read(len(self._header))):
                os.pwrite(file.fileno(), self._header, 0)
                if hasattr(os, "posix_fallocate"):  # macOS has none
                    os.posix_fallocate(file.fileno(), 0, self.bytes)
                os.truncate(file.fileno(), self.bytes)
                return file
            rule = "was begun with other settings: delete it, or give another name"
        except BlockingIOError:
            rule = "is being written by another command: wait, or give another name"
        except OSError as error:
            error.filename = self.part
            raise
        raise NotReadyError.of("--out", self.part, rule, "--out other.safetensors")
