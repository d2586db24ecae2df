"""Find the images of a folder of class folders."""

import errno
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from resnet_recipes.data.images.kinds import SUFFIXES

#: Left behind by archivers and file servers; hidden names are ignored as well.
_DEBRIS = (".", "__MACOSX", "@eaDir", "lost+found")

_DEEPEST = 100  # folders in one another


def class_names(split: Path) -> list[str]:
    """Return the class folders of `split`, sorted."""
    with os.scandir(split) as entries:
        return sorted(
            entry.name for entry in entries if not entry.name.startswith(_DEBRIS) and entry.is_dir()
        )


def image_names(folder: Path) -> Iterator[str]:
    """Yield the paths of images below `folder`, relative to it and unsorted, without a `stat` each.

    See `walk`.
    """
    return (path for path, _ in walk(folder))


def walk(
    root: Path,
    inside: str = "",
    others: Counter | None = None,
    folders: list[str] | None = None,
) -> Iterator[tuple[str, os.DirEntry]]:
    """Yield the paths of images below `root`/`inside`, relative to `root` and unsorted.

    `others` counts the remaining files by suffix; `folders` collects the folders listed, `inside`
    first. Follows links to files but not to folders, which could form a cycle. Raises OSError.
    """
    if inside.count("/") >= _DEEPEST:
        raise OSError(errno.ELOOP, f"More than {_DEEPEST} folders in one another", str(root))
    if folders is not None:
        folders.append(inside)
    with os.scandir(os.path.join(root, inside)) as entries:
        for entry in entries:
            if entry.name.startswith(_DEBRIS):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from walk(root, os.path.join(inside, entry.name), others, folders)
            elif entry.name.lower().endswith(SUFFIXES):
                yield os.path.join(inside, entry.name), entry
            elif others is not None:
                others[os.path.splitext(entry.name)[1].lower()] += 1
