"""Find the images of a folder of class folders."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from resnet_recipes.data.files.kinds import SUFFIXES
from resnet_recipes.data.shared import SharedArrays

#: What archivers and file servers leave behind; hidden names are left out as well.
_DEBRIS = (".", "__MACOSX", "@eaDir", "lost+found")


def class_names(split: Path) -> list[str]:
    """Return the class folders of `split`, sorted."""
    with os.scandir(split) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(_DEBRIS) and entry.is_dir())


def image_names(folder: Path | str, inside: str = "", others: Counter | None = None) -> Iterator[str]:
    """Yield the images below `folder` relative to it, unsorted, without a `stat` for each: 1.3 million take some seconds.

    `others` counts the remaining files by suffix. Follows links to files, never to folders, which could form a circle.
    """
    with os.scandir(os.path.join(folder, inside)) as entries:
        for entry in entries:
            if entry.name.startswith(_DEBRIS):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from image_names(folder, os.path.join(inside, entry.name), others)
            elif entry.name.lower().endswith(SUFFIXES):
                yield os.path.join(inside, entry.name)
            elif others is not None:
                others[os.path.splitext(entry.name)[1].lower()] += 1


class Files:
    """The images of one split with their labels, sorted by class and name, in memory that loader workers share."""

    def __init__(self, split: Path, classes: tuple[str, ...]):
        self.split = str(split)
        names, labels = [], []
        for label, name in enumerate(classes):
            found = sorted(image_names(split / name))
            names += [os.fsencode(os.path.join(name, file)) for file in found]
            labels += [label] * len(found)
        self._arrays = SharedArrays(text=("u1", (sum(map(len, names)),)), ends=("i8", (len(names) + 1,)), labels=("i8", (len(names),)))
        self._arrays["text"][:] = np.frombuffer(b"".join(names), np.uint8)
        self._arrays["ends"][1:] = np.cumsum([len(name) for name in names])
        self._arrays["labels"][:] = labels

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def labels(self) -> np.ndarray:
        """Labels of all images, int64 [N]."""
        return self._arrays["labels"]

    def path(self, index: int) -> str:
        """Return where image `index` is."""
        start, end = self._arrays["ends"][index:index + 2]
        return os.path.join(self.split, os.fsdecode(self._arrays["text"][start:end].tobytes()))
