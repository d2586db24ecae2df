"""The images of a conversion: a folder with one folder per class, or a .beton file."""

import hashlib
import os
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from resnet_recipes.data.beton.file import JPEG, Beton, open_beton
from resnet_recipes.data.files.folder import SUFFIXES, class_names, image_names
from resnet_recipes.data.images.decode import read_file
from resnet_recipes.errors import NotReadyError, Problem


class Source(Protocol):
    """Labelled images in a fixed order; small enough to send to another process."""

    classes: tuple[str, ...]
    labels: np.ndarray                  # int64 [N]

    @property
    def fingerprint(self) -> str:
        """SHA-256 that changes when images are added, removed, renamed, or replaced by others of another size."""

    def name(self, index: int) -> str:
        """Return the name of an image for messages."""

    def read(self, index: int) -> bytes | np.ndarray:
        """Return the bytes of an image file, or pixels as uint8 [H, W, 3]."""


@dataclass(frozen=True)
class FolderSource:
    """One folder per class; classes and files in the order of their names, as ImageFolder numbers them."""

    root: Path
    classes: tuple[str, ...]
    files: tuple[str, ...]              # relative to root
    labels: np.ndarray

    @cached_property
    def fingerprint(self) -> str:
        lines = (f"{name}\0{_size(self.root / name)}\n" for name in self.files)
        return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()

    def name(self, index: int) -> str:
        return str(self.root / self.files[index])

    def read(self, index: int) -> bytes:
        return read_file(self.root / self.files[index])


@dataclass(frozen=True)
class BetonSource:
    """The samples of a .beton file, in stored order."""

    beton: Beton

    @property
    def classes(self) -> tuple[str, ...]:
        return self.beton.classes

    @property
    def labels(self) -> np.ndarray:
        return self.beton.labels

    @property
    def fingerprint(self) -> str:
        return self.beton.structure

    def name(self, index: int) -> str:
        return f"{self.beton.path}, sample {index}"

    def read(self, index: int) -> bytes | np.ndarray:
        data = self.beton.sample(index)
        if complaint := self.beton.complaint(index, data):
            raise ValueError(complaint)
        return data.tobytes() if self.beton.modes[index] == JPEG else data.reshape(*self.beton.sizes[index], 3)


def open_source(path: Path, classes: tuple[str, ...] | None = None) -> Source:
    """Open a class folder tree or a .beton file; `classes` fixes the label order and which classes may occur.

    Raises NotReadyError if no image is found, or if a class folder is not in `classes`.
    """
    if os.path.isfile(path):
        return BetonSource(open_beton(path))
    if not os.path.isdir(path):
        rule = "is neither a folder nor a .beton file" if os.path.lexists(path) else "does not exist"
        raise NotReadyError([Problem(str(path), None, rule)])
    found = tuple(class_names(path))
    strange = sorted(set(found) - set(classes or found))
    if strange or not found:
        lacking = f"has class folders that the training set lacks: {', '.join(strange[:5])}"
        fix = f"resnet-recipes doctor data {shlex.quote(str(path.parent))}"
        raise NotReadyError([Problem(str(path), None, lacking if strange else "has no class folders", fix)])
    classes = classes or found
    files, labels = [], []
    for label, name in enumerate(classes):
        images = sorted(image_names(path / name)) if name in found else []
        files.extend(f"{name}/{image}" for image in images)
        labels.extend([label] * len(images))
    if not files:
        raise NotReadyError([Problem(str(path), None, f"has no images ({', '.join(SUFFIXES)}) in its class folders")])
    return FolderSource(path, classes, tuple(files), np.array(labels, np.int64))


def _size(path: Path) -> int:
    """Return the bytes of a file; -1 for a link that leads nowhere, which is an unreadable image like others."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
