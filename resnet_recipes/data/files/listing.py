"""List the images of a split with their labels from folders; cache long listings."""

import errno
import hashlib
import json
import os
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np

from resnet_recipes.base import atomic
from resnet_recipes.base.paths import get_cache_folder
from resnet_recipes.base.text import Say, do_nothing
from resnet_recipes.data.images.decode import SUFFIXES
from resnet_recipes.data.root import DEBRIS, list_classes

_MAX_DEPTH = 100  # maximum depth of nested folders


def iterate_images(folder: Path) -> Iterator[str]:
    """Yield the paths of images below `folder`, relative to it and unsorted; see `walk`.

    Makes no `stat` call per image.
    """
    return (path for path, _ in walk(folder))


def walk(
    root: Path,
    inside: str = "",
    others: Counter | None = None,
    folders: list[str] | None = None,
) -> Iterator[tuple[str, os.DirEntry]]:
    """Yield each image below `root`/`inside`: its path relative to `root`, and its entry; unsorted.

    `others` counts the remaining files by suffix; `folders` collects the listed folders, `inside`
    first. Follows links to files but not to folders, which could form a cycle. Raises OSError if a
    folder cannot be read or is nested too deeply.
    """
    if inside.count("/") >= _MAX_DEPTH:
        raise OSError(errno.ELOOP, f"More than {_MAX_DEPTH} nested folders", str(root))
    if folders is not None:
        folders.append(inside)
    with os.scandir(os.path.join(root, inside)) as entries:
        for entry in entries:
            if entry.name.startswith(DEBRIS):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from walk(root, os.path.join(inside, entry.name), others, folders)
            elif entry.name.lower().endswith(SUFFIXES):
                yield os.path.join(inside, entry.name), entry
            elif others is not None:
                others[os.path.splitext(entry.name)[1].lower()] += 1


#: Smaller listings take less than a second and are not cached.
_MIN_CACHED_IMAGES = 100_000

#: Nanoseconds without a change in any folder before a listing is cached, because some file systems
#: round times to two seconds.
_SETTLING_NANOSECONDS = 2 * 10**9

READ_THREADS = 16  # network file systems serve many requests at once
_CACHED_ARRAYS = ("text", "ends", "sizes", "counts")


#: Errors of a broken link. Other errors may be temporary, which would change the list of images.
_BROKEN_LINK_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)

#: Path, time of change and inode of folders.
_Stamps = list[tuple[str, int, int]]


def choose_strata(sizes: np.ndarray, count: int) -> np.ndarray:
    """Return positions of at most `count` sizes, ascending: the middle of each equal part.

    The mean over them is close to the mean over all sizes, even if a few are much larger.
    """
    count = min(count, len(sizes))
    middle = (2 * np.arange(count) + 1) * len(sizes) // (2 * max(1, count))
    return np.argsort(sizes, kind="stable")[middle]


@dataclass(frozen=True)
class Listing:
    """Every image of a split, sorted by class and name."""

    folder: str  # base folder of the names
    classes: tuple[str, ...]
    text: np.ndarray  # uint8, all names joined
    ends: np.ndarray  # int64 [N], where each name ends
    sizes: np.ndarray  # int64 [N], bytes; -1: unknown
    counts: np.ndarray  # int64 [C], images in each class
    # number of other files, by suffix
    others: Counter[str] = field(default_factory=Counter)
    is_cached: bool = False  # read from the cache

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def digest(self) -> str:
        """A digest of all names and sizes."""
        return hashlib.sha256(
            self.text.tobytes() + self.ends.tobytes() + self.sizes.tobytes()
        ).hexdigest()[:32]

    @property
    def labels(self) -> np.ndarray:
        """The label of each image, int64 [N]."""
        return np.repeat(np.arange(len(self.classes)), self.counts)

    @property
    def names(self) -> list[str]:
        """The name of each image: its path from `folder`."""
        text = self.text.tobytes()
        ends = self.ends.tolist()
        return [os.fsdecode(text[start:end]) for start, end in zip([0, *ends], ends, strict=False)]

    @property
    def has_inner(self) -> bool:
        """Whether some images are in subfolders of the class folders."""
        return int(np.count_nonzero(self.text == ord("/"))) > len(self)

    def name(self, index: int) -> str:
        """Return the path of an image from `folder`."""
        start = int(self.ends[index - 1]) if index else 0
        return os.fsdecode(self.text[start : self.ends[index]].tobytes())

    def path(self, index: int) -> str:
        """Return the path of an image, including `folder`."""
        return os.path.join(self.folder, self.name(index))

    @property
    def paths(self) -> list[str]:
        """The paths of all images, including `folder`."""
        return [os.path.join(self.folder, name) for name in self.names]

    def sample(self, count: int) -> tuple[str, ...]:
        """Return the paths of at most `count` images; see `choose_strata`."""
        return tuple(self.path(int(index)) for index in choose_strata(self.sizes, count))

    @classmethod
    def of(cls, split: Path, on_progress: Say = do_nothing) -> "Listing":
        """List a folder of class folders; use the cached listing if no folder has changed.

        Raises OSError if a folder cannot be read.
        """
        cache = get_cache_path(split)
        if (cached := _read_cache(cache, split)) is not None:
            return cached
        start, listing, folders = time.time_ns(), *_list_split(split, on_progress)
        if (
            len(listing) >= _MIN_CACHED_IMAGES
            and max(changed for _, changed, _ in folders) < start - _SETTLING_NANOSECONDS
        ):
            _write_cache(cache, listing, folders, on_progress)
        return listing

    @classmethod
    def build(cls, folder: str, images: Iterable[tuple[str, str, int]]) -> Self:
        """Build a listing from images given as (class, name, size), in any order."""
        rows = list(images)
        classes = sorted({label for label, _, _ in rows})
        indices = {label: index for index, label in enumerate(classes)}
        rows.sort(key=lambda row: (indices[row[0]], row[1]))
        counts = np.bincount([indices[label] for label, _, _ in rows], minlength=len(classes))
        return cls.pack(folder, classes, [row[1:] for row in rows], counts)

    @classmethod
    def pack(
        cls,
        folder: str,
        classes: Sequence[str],
        images: Sequence[tuple[str, int]],
        counts: Sequence[int] | np.ndarray,
        others: Counter | None = None,
    ) -> Self:
        """Build a listing from sorted images, given as (name, size)."""
        names = [os.fsencode(name) for name, _ in images]
        return cls(
            folder,
            tuple(classes),
            np.frombuffer(b"".join(names), np.uint8),
            np.cumsum([*map(len, names)], dtype=np.int64),
            np.array([size for _, size in images], np.int64),
            np.array(counts, np.int64),
            others or Counter(),
        )

    def select(self, mask: np.ndarray) -> Self:
        """Return the images where `mask` [N] is true, with the same classes."""
        name_bytes = np.diff(self.ends, prepend=0)
        counts = np.bincount(self.labels[mask], minlength=len(self.classes))
        return replace(
            self,
            text=self.text[np.repeat(mask, name_bytes)],
            ends=np.cumsum(name_bytes[mask]),
            sizes=self.sizes[mask],
            counts=counts,
        )


def get_cache_path(split: Path) -> Path:
    """Return the path of a split's cached listing."""
    digest = hashlib.sha256(os.fsencode(split.absolute())).hexdigest()
    return get_cache_folder() / f"listing-{digest[:32]}.npz"


def _list_split(split: Path, on_progress: Say) -> tuple[Listing, _Stamps]:
    """List a split; also return (path, time of change, inode) of all its folders."""
    classes = list_classes(split)
    others: Counter[str] = Counter()
    folders = [_read_stamp(split, "")]
    images = []
    counts = []
    start = reported = time.monotonic()
    with ThreadPoolExecutor(READ_THREADS) as pool:
        for members, inside, rest in pool.map(lambda name: _list_class(split, name), classes):
            images += members
            counts.append(len(members))
            folders += inside
            others += rest
            if (now := time.monotonic()) > reported + 10:
                reported = now
                done = len(counts)
                seconds_left = (now - start) / done * (len(classes) - done)
                on_progress(
                    f"listing {split}: {len(images):,} images in {done:,} of {len(classes):,} "
                    f"classes, {seconds_left:.0f} s left"
                )
    return Listing.pack(str(split), classes, images, counts, others), folders


def _list_class(split: Path, name: str) -> tuple[list[tuple[str, int]], _Stamps, Counter[str]]:
    """Return the images of a class with their sizes, its folders, and a count of other files."""
    others: Counter[str] = Counter()
    folders: list[str] = []
    images = []
    for path, entry in walk(split, name, others, folders):
        try:
            size = entry.stat().st_size
        except OSError as error:
            if error.errno not in _BROKEN_LINK_ERRNOS:
                raise
            size = -1  # the error is reported when the image is read
        images.append((path, size))
    return sorted(images), [_read_stamp(split, folder) for folder in folders], others


def _read_stamp(split: Path, folder: str) -> tuple[str, int, int]:
    status = os.stat(os.path.join(split, folder))
    return folder, status.st_ctime_ns, status.st_ino  # unlike mtime, no program can set ctime back


def _read_cache(cache: Path, split: Path) -> Listing | None:
    """Read a cached listing; None if it does not exist or a folder has changed since."""
    try:
        with np.load(cache) as content:
            about = json.loads(content["about"].tobytes())
            stamps = [tuple(stamp) for stamp in about["folders"]]
            if [_read_stamp(split, folder) for folder, *_ in stamps] != stamps:
                return None
            return Listing(
                str(split),
                tuple(about["classes"]),
                **{name: content[name] for name in _CACHED_ARRAYS},
                others=Counter(about["others"]),
                is_cached=True,
            )
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None


def _write_cache(cache: Path, listing: Listing, folders: _Stamps, on_progress: Say) -> None:
    about = {"classes": listing.classes, "folders": folders, "others": listing.others}
    arrays = {name: getattr(listing, name) for name in _CACHED_ARRAYS}
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replace_file(cache) as file:
            np.savez(file, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)
    except OSError as error:
        on_progress(
            f"cannot cache the listing in {cache.parent} ({error.strerror}): every rank will "
            "list the images itself"
        )
