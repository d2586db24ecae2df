"""Images in a bucket or on a web server: fetched once per machine, checked, then read as usual.

A plan needs only names and sizes; a run needs the complete files.
"""

import hashlib
import re
import time
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.errors import NotReadyError, RecipeError
from resnet_recipes.base.extras import suggest_install
from resnet_recipes.base.text import Progress, format_bytes
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.remote import disk
from resnet_recipes.data.remote.base import RemoteFile, Store
from resnet_recipes.data.remote.contents import PARALLEL_REQUESTS, fetch_heads, list_contents
from resnet_recipes.data.remote.local_copy import PART, Copy, IsStopped
from resnet_recipes.data.root import TABLES, find_address_problems

#: Seconds that a plan fetches to measure the speed.
_SAMPLE_SECONDS = 3.0


class _Remote(NamedTuple):
    """The dataset at a URL, and its copy on this machine."""

    store: Store
    heads: tuple[RemoteFile, ...]
    table_name: str  # the table that the URL names, or ""
    name: str  # name of the folder with its copies
    version: str
    complete: Path | None  # the complete copy, if it exists

    def copy(self, cache: str) -> Copy:
        """Return a copy to complete. Raises NotReadyError if no disk has enough free space."""
        contents = list_contents(self.store, self.heads, self.table_name)
        home = disk.choose_folder(cache, self.name, f"{self.version}{PART}", contents.size)
        return Copy(self.store, contents, home, self.version)


class DataOutline(NamedTuple):
    """Files with the right names and sizes, but without all of their content."""

    root: Path
    note: str  # what remains to be fetched


def fetch_outline(config: DataConfig) -> DataOutline:
    """Return files for counting the images at a URL; fetches for a few seconds.

    Raises RecipeError if the URL is wrong, NotReadyError if a file cannot be fetched, or no disk
    has enough free space for the complete copy.
    """
    remote = _look_up_dataset(config)
    if complete := remote.complete:
        note = f"read from a copy on this machine, {complete}"
        if not (complete / "train.beton").exists():
            note += "; only its table was compared. To fetch the images again, delete the copy"
        return DataOutline(complete / remote.table_name, note)
    copy = remote.copy(config.cache)
    start = time.monotonic()
    before = copy.fetched_bytes
    total = copy.contents.size
    copy.outline(lambda: time.monotonic() > start + _SAMPLE_SECONDS)
    fetched, speed = copy.fetched_bytes, ""
    if before < fetched < total:
        rate = (fetched - before) / (time.monotonic() - start)
        minutes = max(1, (total - fetched) / rate / 60)
        speed = f", about {minutes:,.0f} min at {format_bytes(rate)}/s"
    rest = f"{format_bytes(total - fetched)} of {format_bytes(total)} are still to be fetched"
    rest += f" before the first step{speed}"
    if fetched == total:
        rest = f"all {format_bytes(total)} are fetched"
    note = f"{rest}, to {copy.final}; compared with {copy.contents.digest_text}"
    return DataOutline(copy.path / remote.table_name, note)


def fetch_copy(config: DataConfig, progress: Progress, stopped: IsStopped) -> Path | None:
    """Return the folder or table with a complete copy of the images at a URL.

    Returns None if stopped before the copy is complete. Raises RecipeError if the URL is wrong,
    NotReadyError if images cannot be fetched or stored.
    """
    remote = _look_up_dataset(config)
    if remote.complete:
        return remote.complete / remote.table_name
    if stopped():
        return None
    copy = remote.copy(config.cache)
    return copy.final / remote.table_name if copy.complete(progress, stopped) else None


def _look_up_dataset(config: DataConfig) -> _Remote:
    """Request the files that describe the dataset, and look for a copy."""
    # a plan does not require data.root, so it was not checked
    RecipeError.raise_if_any(
        problem.under("data") for problem in find_address_problems(config.root)
    )
    address, table_name = config.root, ""
    if address.lower().endswith(TABLES):
        address, _, table_name = address.rpartition("/")
    store = _open_store(address)
    heads = fetch_heads(store, table_name, config.backend)
    name = _name_copy_folder(config.root)
    version = _compute_short_digest(repr(heads))
    home = disk.find_copy(config.cache, name)
    complete = home / version if home and (home / version).is_dir() else None
    return _Remote(store, heads, table_name, name, version, complete)


def get_version(copy: str) -> str:
    """Return the version of the dataset in a copy."""
    path = Path(copy)
    return (path if path.is_dir() else path.parent).name


def has_copy(config: DataConfig) -> bool:
    """Return whether the cache has images of a URL; makes no requests.

    Raises NotReadyError if another user may have written to them.
    """
    return disk.find_copy(config.cache, _name_copy_folder(config.root)) is not None


def _name_copy_folder(address: str) -> str:
    """Return the name of the folder with the copies of the dataset at a URL."""
    title = re.sub("[^A-Za-z0-9.-]+", "-", address.rpartition("/")[2])[:40]
    return f"{title}-{_compute_short_digest(address)}"


def _open_store(address: str) -> Store:
    try:
        from resnet_recipes.data.remote.stores import Bucket, Web

        return Web(address, PARALLEL_REQUESTS) if address.startswith("http") else Bucket(address)
    except ImportError as error:
        clause = f"needs a package that is not installed: {error}"
        raise NotReadyError.of("data.root", address, clause, suggest_install("remote")) from None


def _compute_short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
