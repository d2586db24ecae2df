"""A file of a teacher's outputs that ranks write together, an epoch at a time."""

import fcntl
import json
import os
import shlex
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from torch import Tensor

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.stored import KEY, Description, Outputs


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
