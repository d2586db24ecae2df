"""What a teacher said of every training image: a file that stands in for the teacher.

A .safetensors file of three tensors. `values` and `classes`, [epochs, copies, images, k], are the k
largest of K outputs for one crop each: logits in float32 if k = K, else logarithms of probabilities
in float16. `sha256`, [epochs, 32], has digests, or zeros before an epoch is whole.
"""

import fcntl
import hashlib
import json
import os
import shlex
from functools import cache, cached_property
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

#: Key of the description in the metadata.
KEY = "resnet_recipes"

AGAIN = "write it again:  resnet-recipes teach NAME data=PATH methods.distill.teacher=T"

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
        outputs, place = _mapped(self._stored.path), (rows.epoch, rows.copies, rows.indices)
        values, classes = outputs.values[place], outputs.classes[place]
        spread(values, classes, self._stored.temperature, rows.taught)


def kept(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return values and classes, [n, count], of what is stored of a batch's logits [n, K]."""
    values = logits if count == logits.shape[1] else logits.log_softmax(1)
    return values.topk(count)


def spread(values: np.ndarray, classes: np.ndarray, temperature: float, out: np.ndarray) -> None:
    """Write probabilities [n, K] of outputs [n, k] that were kept, at a temperature.

    If all are kept, these are the bits of torch's softmax; else the others share what is left.
    """
    values = values.astype(np.float32) / np.float32(temperature)
    places, others = (np.arange(len(out))[:, None], classes), out.shape[1] - values.shape[1]
    if not others:
        out[places] = values
        out[:] = torch.softmax(torch.from_numpy(out), 1).numpy()
        return
    known = np.exp(values)
    share = np.maximum(1 - (known**temperature).sum(1, keepdims=True), _LEAST) / others
    share **= 1 / temperature
    whole = known.sum(1, keepdims=True) + others * share
    out[:] = share / whole
    out[places] = known / whole


class Outputs(NamedTuple):
    """The tensors of a file, mapped."""

    values: np.ndarray
    classes: np.ndarray
    sha256: np.ndarray

    def digest(self, epoch: int) -> bytes:
        """Return the digest of an epoch."""
        found = hashlib.sha256()
        for part in (self.values[epoch], self.classes[epoch]):
            found.update(part.reshape(-1).view(np.uint8))
        return found.digest()

    def fault(self, shape: tuple[int, ...], classes: int) -> str:
        """Return what is wrong with outputs of `shape` [epochs, copies, images], or "".

        Reads all of them, 1 s for each GB.
        """
        kinds = "".join(part.dtype.kind for part in self)
        if kinds != "fuu" or not (
            self.values.shape[:-1] == shape
            and self.values.shape == self.classes.shape
            and self.values.size > 0
            and self.values.shape[-1] <= classes
            and self.sha256.shape == (shape[0], 32)
        ):
            return "has tensors that do not belong to these images"
        for epoch, digest in enumerate(self.sha256):
            if digest.tobytes() != self.digest(epoch):
                return "was changed after it was written"
            # a sum in float64 is finite if all are, and needs no memory
            is_finite = np.isfinite(self.values[epoch].sum(dtype=np.float64))
            if not is_finite or self.classes[epoch].max() >= classes:
                return "has outputs that are not finite numbers, or of no class"
        return ""


class Description(NamedTuple):
    """What is known of a file, beside its outputs."""

    teacher: str
    repeats: bool  # whether runs of any length repeat its epochs
    made: dict[str, Any]  # all that the outputs depend on


def read(path: Path) -> tuple[Outputs, Description]:
    """Map a file; return its outputs, and what is known of it. Raises NotReadyError."""
    try:
        tensors, metadata = read_tensors(path)
        outputs = Outputs(*(tensors[name].numpy() for name in Outputs._fields))
        about = Description(**parse_json(metadata[KEY]))
        return outputs, about._replace(made=dict(about.made))
    except (OSError, ValueError) as error:
        rule = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    except (LookupError, TypeError):
        rule = "was not written by `resnet-recipes teach`, or by another version of it"
    raise NotReadyError.at(path, rule, AGAIN)


@cache
def _mapped(path: Path) -> Outputs:
    return read(path)[0]


class Writer:
    """The file, whose name ends in `.part` until it is whole; a later writer goes on with it.

    `shape` is [epochs, copies, images, k], `classes` K.
    """

    def __init__(
        self, path: Path, about: Description, shape: tuple[int, int, int, int], classes: int
    ):
        self._path, self._part, self.shape = path, path.with_name(f"{path.name}.part"), shape
        self._layout = [
            (np.dtype("f4" if shape[3] == classes else "f2"), shape),
            (np.min_scalar_type(classes - 1), shape),
            (np.dtype("u1"), (shape[0], 32)),
        ]
        header: dict[str, Any] = {"__metadata__": {KEY: json.dumps(about._asdict())}}
        start = end = 0
        for name, (kind, size) in zip(Outputs._fields, self._layout, strict=True):
            start, end = end, end + prod(size) * kind.itemsize
            dtype = f"{kind.kind.upper()}{8 * kind.itemsize}"
            header[name] = {"dtype": dtype, "shape": size, "data_offsets": [start, end]}
        text = json.dumps(header)
        text += " " * (-len(text) % 8)
        self._header = len(text).to_bytes(8, "little") + text.encode()
        self.bytes = len(self._header) + end

    @property
    def missing(self) -> int:
        """Bytes of the disk that it does not have yet."""
        return self.bytes - (self._part.stat().st_size if self._part.exists() else 0)

    def begin(self) -> BinaryIO:
        """Create the file with all its room, or find it; others cannot while it is open.

        Raises NotReadyError if it is that of another command, OSError if it cannot be written.
        """
        self._part.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = open(self._part, "r+b", opener=_no_link)  # noqa: SIM115, returned
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
            error.filename = self._part
            raise
        other = shlex.quote(str(self._path.with_stem(f"{self._path.stem}2")))
        raise NotReadyError.of("--out", self._part, rule, f"--out {other}")

    @property
    def whole(self) -> int:
        """Epochs that are whole."""
        return int(self._outputs.sha256.any(1).sum())

    def write(
        self, epoch: int, copy: int, first: int, outputs: tuple[Tensor, Tensor]
    ) -> tuple[int, int]:
        """Write values and classes, [n, k]; return how many images are done, and of how many."""
        last = first + len(outputs[0])
        for part, rows in zip(self._outputs, outputs, strict=False):
            part[epoch, copy, first:last] = rows.numpy(force=True)
        _, copies, images, _ = self.shape
        return (epoch * copies + copy) * images + last, prod(self.shape[:3])

    def finish(self, epoch: int) -> None:
        """Record that an epoch is whole."""
        digest = np.frombuffer(self._outputs.digest(epoch), np.uint8)
        with self._part.open("rb") as file:
            os.fsync(file)
            self._outputs.sha256[epoch] = digest
            os.fsync(file)

    def publish(self) -> None:
        """Give the file its name, once all epochs are whole."""
        self._part.rename(self._path)

    @cached_property
    def _outputs(self) -> Outputs:
        """The tensors, mapped for writing."""
        parts, start = [], len(self._header)
        for kind, size in self._layout:
            parts.append(np.memmap(self._part, kind, "r+", start, size))
            start += parts[-1].nbytes
        return Outputs(*parts)


def _no_link(name: str, flags: int) -> int:
    """Open or create a file, but neither follow a link nor wait for a pipe."""
    return os.open(name, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
