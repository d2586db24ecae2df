"""The images of a split as its folders list them, kept from one start to the next."""

import hashlib
import json
import os
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from resnet_recipes import atomic
from resnet_recipes.data.files.folder import class_names, walk

#: Images below which a listing takes less than a second, and is not kept.
_WORTH_KEEPING = 100_000

#: Nanoseconds for which all folders must have been left alone before: some file systems keep times in steps of two
#: seconds.
_SETTLED = 2 * 10**9

_THREADS = 16          # network file systems answer many questions at once

#: Shows a line of progress.
Tell = Callable[[str], None]


class Listing(NamedTuple):
    """Every image of a split, sorted by class and name."""

    classes: tuple[str, ...]
    names: np.ndarray      # uint8, CLASS/NAME of one image after the other
    ends: np.ndarray       # int64 [N], where each name ends
    sizes: np.ndarray      # int64 [N], bytes; -1: unknown
    counts: np.ndarray     # int64 [C], images by class
    others: Counter        # files that are not images by name, by suffix
    kept: bool = False     # read from the cache

    @property
    def digest(self) -> str:
        """Return what changes with any name or size."""
        return hashlib.sha256(self.names.tobytes() + self.ends.tobytes() + self.sizes.tobytes()).hexdigest()[:32]

    @classmethod
    def of(cls, split: Path, tell: Tell = lambda line: None) -> Self:
        """List a split, or return the listing kept of an earlier start if no folder has changed since."""
        cache = cache_path(split)
        if (kept := _kept(cache, split)) is not None:
            return kept
        began, listing, folders = time.time_ns(), *_listed(split, tell)
        if len(listing.sizes) >= _WORTH_KEEPING and max(changed for _, changed, _ in folders) < began - _SETTLED:
            _keep(cache, listing, folders, tell)
        return listing


def cache_path(split: Path) -> Path:
    """Return the file in the user's cache folder (XDG_CACHE_HOME) that keeps the listing of a split."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    digest = hashlib.sha256(os.fsencode(split.absolute())).hexdigest()
    return Path(root) / "resnet-recipes" / f"listing-{digest[:32]}.npz"


def _listed(split: Path, tell: Tell) -> tuple[Listing, list[tuple[str, int, int]]]:
    """List a split; return with it (path, time of change, inode) of all its folders."""
    classes, others, names, sizes, counts = tuple(class_names(split)), Counter(), [], [], []
    folders, told, found = [_stamp(split, "")], time.monotonic(), 0
    with ThreadPoolExecutor(_THREADS) as pool:
        for done, (images, inside, rest) in enumerate(pool.map(lambda name: _class(split, name), classes), start=1):
            names += [os.fsencode(name) for name, _ in images]
            sizes += [size for _, size in images]
            counts.append(len(images))
            folders += inside
            others += rest
            found += len(images)
            if time.monotonic() > told + 2:
                told = time.monotonic()
                tell(f"listing {split}: {found:,} images in {done:,} of {len(classes):,} classes")
    text = np.frombuffer(b"".join(names), np.uint8)
    ends = np.cumsum([len(name) for name in names], dtype=np.int64)
    return Listing(classes, text, ends, np.array(sizes, np.int64), np.array(counts, np.int64), others), folders


def _class(split: Path, name: str) -> tuple[list[tuple[str, int]], list[tuple[str, int, int]], Counter]:
    """Return the images of a class with their sizes, its folders, and what else it holds."""
    others, folders = Counter(), []
    images = []
    for path, entry in walk(split, name, others, folders):
        try:
            size = entry.stat().st_size
        except OSError:                                # a broken link: reading it is what fails
            size = -1
        images.append((path, size))
    return sorted(images), [_stamp(split, folder) for folder in folders], others


def _stamp(split: Path, folder: str) -> tuple[str, int, int]:
    status = os.stat(os.path.join(split, folder))
    return folder, status.st_ctime_ns, status.st_ino         # unlike mtime, no program can set ctime back


def _kept(cache: Path, split: Path) -> Listing | None:
    """Read a listing; None if there is none, or a folder has changed since."""
    try:
        with np.load(cache) as content:
            about = json.loads(content["about"].tobytes())
            stamps = [tuple(stamp) for stamp in about["folders"]]
            if [_stamp(split, folder) for folder, *_ in stamps] != stamps:
                return None
            arrays = (content[name] for name in ("names", "ends", "sizes", "counts"))
            return Listing(tuple(about["classes"]), *arrays, Counter(about["others"]), kept=True)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None


def _keep(cache: Path, listing: Listing, folders: list[tuple[str, int, int]], tell: Tell) -> None:
    about = {"classes": listing.classes, "folders": folders, "others": listing.others}
    arrays = {name: getattr(listing, name) for name in ("names", "ends", "sizes", "counts")}
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(cache) as file:
            np.savez(file, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)
    except OSError as error:
        tell(f"the listing cannot be kept in {cache.parent} ({error.strerror}): every rank will list the images itself")
