"""What a teacher said of every training image: a file that stands in for the teacher.

A .safetensors file with a row for each epoch, copy and index, so that it belongs to one crop of
one image. A row has the k largest of K outputs; the rest of the probability is spread evenly.
"""

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.reading import open_regular, parse_json, unreadable
from resnet_recipes.data.base import Stored
from resnet_recipes.data.loading.storage import Rows, Storage

#: The least probability that is left for outputs that are not kept: rounding could leave none.
_LEAST = 1e-6

_TYPES = {"classes": int, "kept": int, "shape": list, "made": dict, "sha256": list}
_TYPES |= {"teacher": str, "exact": bool}


#: Key of the description in the header, and bytes of the longest header, of 200,000 epochs.
_KEY, _MOST = "resnet_recipes", 16 << 20

#: Stands for the digest of an epoch that is not whole, so that the header keeps its length.
_PENDING = "0" * 64

#: Rows that are checked at once, which bounds the memory that this takes.
_AT_ONCE = 4096


class Taught:
    """A storage whose rows come with what a teacher said of them."""

    def __init__(self, storage: Storage, stored: Stored):
        self.labels, self.in_threads, self.path = storage.labels, storage.in_threads, storage.path
        self._storage, self._stored = storage, stored

    def fill(self, rows: Rows) -> None:
        """Write pixels and the teacher's probabilities. Raises UnreadableError."""
        self._storage.fill(rows)
        found = _rows(self._stored)[rows.epoch, rows.copies, rows.indices]
        spread(found["classes"], found["values"], self._stored.temperature, rows.taught)


def spread(classes: np.ndarray, values: np.ndarray, temperature: float, out: np.ndarray) -> None:
    """Write probabilities [n, K] of outputs [n, k] that were kept, at a temperature.

    If all are kept, they are logits, and these are the bits of torch's softmax; else they are
    logarithms of probabilities, and the others share what is left.
    """
    values = values.astype(np.float32) / np.float32(temperature)
    places, others = (np.arange(len(out))[:, None], classes), out.shape[1] - values.shape[1]
    if not others:
        out[places] = values
        out[:] = torch.softmax(torch.from_numpy(out), 1).numpy()
        return
    kept = np.exp(values)
    share = np.maximum(1 - (kept**temperature).sum(1, keepdims=True), _LEAST) / others
    share **= 1 / temperature
    whole = kept.sum(1, keepdims=True) + others * share
    out[:] = share / whole
    out[places] = kept / whole


def row_type(stored: Stored) -> np.dtype:
    """Return the type of a row: the classes that are kept, and their values."""
    index, value = (
        "<u2" if stored.classes <= 1 << 16 else "<u4",
        "<f4" if stored.is_exact else "<f2",
    )
    return np.dtype([("classes", index, (stored.kept,)), ("values", value, (stored.kept,))])


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

    def __init__(self, path: Path, about: Mapping[str, Any]):
        self._path, self._part = path, path.with_name(f"{path.name}.part")
        self._about = {**about, "sha256": [_PENDING] * about["shape"][0]}
        self._stored = located(self._part, about)
        self.kept, self._shape = self._stored.kept, self._stored.shape
        self.kind = row_type(self._stored)

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
        """Bytes of the disk that it has taken already; its size says nothing, as it has gaps."""
        return 512 * self._part.stat().st_blocks if self._part.exists() else 0

    def images(self, epoch: int, copy: int, done: int) -> tuple[int, int]:
        """Return how many images are done, and how many there are, in all epochs."""
        return (epoch * self._shape[1] + copy) * self._shape[2] + done, math.prod(self._shape)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other commands from writing the file.

        Raises NotReadyError if one does, or if something else has its name.
        """
        self._part.parent.mkdir(parents=True, exist_ok=True)
        if self._part.is_symlink() or (self._part.exists() and not self._part.is_file()):
            raise NotReadyError.of(
                "--out", str(self._part), "is not a regular file", f"rm -r {self._part}"
            )
        with self._part.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                rule, fix = "is being written by another command", "wait until that ends"
                raise NotReadyError.of("--out", str(self._part), rule, fix) from None
            yield

    def begin(self) -> int:
        """Create the file, or find what was written before; return how many epochs are whole.

        Raises NotReadyError if it was begun with other settings.
        """
        self._part.touch()
        if self._part.stat().st_size:
            found = described(self._part)
            if found | {"sha256": []} != self._about | {"sha256": []}:
                rule = "was begun by another command"
                raise NotReadyError.of("--out", str(self._part), rule, f"rm {self._part}")
            self._about = found
        else:
            self._part.write_bytes(_header(self._about))
        os.truncate(self._part, len(_header(self._about)) + self.bytes)
        return sum(digest != _PENDING for digest in self._about["sha256"])

    def write(self, epoch: int, copy: int, first: int, rows: np.ndarray) -> None:
        """Write the rows of images from `first` on."""
        before = np.ravel_multi_index((epoch, copy, first), self._shape) * self.kind.itemsize
        with self._part.open("r+b") as file:
            file.seek(len(_header(self._about)) + int(before))
            file.write(rows.tobytes())

    def finish(self, epoch: int) -> None:
        """Record that an epoch is whole."""
        with self._part.open("r+b") as file:
            os.fsync(file.fileno())
            self._about["sha256"][epoch] = _digest(_mapped(self._stored)[epoch])
            file.write(_header(self._about))
            file.flush()
            os.fsync(file.fileno())

    def publish(self) -> None:
        """Give the file its name, once all epochs are whole."""
        self._part.rename(self._path)


def described(path: Path) -> dict[str, Any]:
    """Return what is known of a file of outputs. Raises NotReadyError if it is none."""
    try:
        with open_regular(path) as file:
            text = file.read(min(int.from_bytes(file.read(8), "little"), _MOST))
        found = parse_json(parse_json(text.decode())["__metadata__"][_KEY])
        kinds = {key: type(value) for key, value in found.items()}
        if kinds == _TYPES and _is_possible(found) and _header(found)[8:] == text:
            return found
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, LookupError, TypeError, AttributeError):
        pass  # as below
    raise unreadable(path, ValueError("not written by `resnet-recipes teach`"))


def located(path: Path, about: Mapping[str, Any], temperature: float = 1.0) -> Stored:
    """Return the outputs in a file of this description."""
    epochs, copies, images = about["shape"]
    shape = epochs, copies, images
    return Stored(path, shape, about["classes"], about["kept"], about["exact"], temperature)


def checked(stored: Stored, digests: Sequence[Any]) -> None:
    """Read all outputs, and compare each epoch with its digest; 1 s for each GB.

    Raises NotReadyError if the file was cut short, changed, or has no finite numbers.
    """
    try:
        rows = _mapped(stored)
        for epoch, digest in zip(rows, digests, strict=True):
            if _digest(epoch) != digest:
                raise ValueError("was changed after it was written")
            for block in _blocks(epoch):
                if not np.isfinite(block["values"]).all() or (
                    block["classes"].max() >= stored.classes
                ):
                    raise ValueError("has outputs that are not finite numbers, or of no class")
    except (OSError, ValueError) as error:
        raise unreadable(stored.path, error) from None


def _is_possible(about: Mapping[str, Any]) -> bool:
    """Return whether a file of this description can exist."""
    shape, epochs = about["shape"], len(about["sha256"])
    counts = {*map(type, shape)} == {int} and shape[0] == epochs
    return counts and 0 < about["kept"] <= about["classes"] < 1 << 24


def _header(about: Mapping[str, Any]) -> bytes:
    """Return the first bytes of a .safetensors file: the description, and where its rows are."""
    stored = located(Path(), about)
    shape = [*stored.shape, row_type(stored).itemsize]
    rows = {"dtype": "U8", "shape": shape, "data_offsets": [0, math.prod(shape)]}
    text = json.dumps({"__metadata__": {_KEY: json.dumps(about)}, "rows": rows})
    text += " " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text.encode()


def _digest(rows: np.ndarray) -> str:
    found = hashlib.sha256()
    for block in _blocks(rows):
        found.update(block.tobytes())
    return found.hexdigest()


def _blocks(rows: np.ndarray) -> Iterator[np.ndarray]:
    flat = rows.reshape(-1)
    return (flat[first : first + _AT_ONCE] for first in range(0, len(flat), _AT_ONCE))


def _mapped(stored: Stored) -> np.ndarray:
    """Map the rows of a file. Raises OSError or ValueError."""
    kind = row_type(stored)
    with open_regular(stored.path) as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        if start + math.prod(stored.shape) * kind.itemsize != os.fstat(file.fileno()).st_size:
            raise ValueError("was cut short, or has more than its rows")
        # a plain array: each use of a memmap costs as much as an image of 64 px
        return np.asarray(np.memmap(file, kind, "r", start, stored.shape))


_rows = cache(_mapped)
