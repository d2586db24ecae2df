"""The files of a dataset at a URL, and the digests of their content."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import Command, Hint, NotReadyError
from resnet_recipes.base.reading import MAX_BYTES
from resnet_recipes.data.files import table
from resnet_recipes.data.remote.base import ForbiddenError, RemoteFile, Store
from resnet_recipes.data.root import CONVERT_HINT, SPLITS, TABLES

#: The format of `sha256sum * > SHA256SUMS`.
SUMS = "SHA256SUMS"

PARALLEL_REQUESTS = 16
_MAX_QUEUED = 1000  # maximum requests in the queue

_FILES = tuple(f"{split}.beton" for split in SPLITS)  # a dataset of .beton files has both
_BETONS = tuple(f"{name}{end}" for name in (*_FILES, "train.half.beton") for end in ("", ".json"))
_TABLES = (*table.METADATA, *(f"{split}{suffix}" for split in SPLITS for suffix in TABLES))
_MAX_TABLE_BYTES = 1 << 30
_MAX_DEPTH = 32  # folders from a table to an image


class Contents(NamedTuple):
    """The files of a dataset."""

    heads: tuple[RemoteFile, ...]  # .beton files with sidecars, or tables; and SUMS
    images: tuple[RemoteFile, ...]  # images listed in tables
    sums: dict[str, str]  # the SHA-256 of files, by name

    @property
    def files(self) -> tuple[RemoteFile, ...]:
        """All files."""
        return (*self.heads, *self.images)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(remote.size for remote in self.files)

    @property
    def digest_text(self) -> str:
        """The digests to compare the copy with."""
        counts = {
            f"the SHA-256 in {SUMS}": sum(remote.name in self.sums for remote in self.files),
            "the MD5 from the store": sum(
                bool(remote.md5) for remote in self.files if remote.name not in self.sums
            ),
        }
        contents = [f"{what} ({count:,} files)" for what, count in counts.items() if count]
        return " and ".join(contents) or f"sizes, because {SUMS} is missing"


def fetch_heads(store: Store, table_name: str, backend: str) -> tuple[RemoteFile, ...]:
    """Return the files that describe a dataset; `table_name` is the table in the URL, or "".

    Raises NotReadyError if there are no such files, or they cannot be fetched.
    """
    remotes = {remote.name: remote for remote in _find_present(store, table_name)}
    if table_name or backend == "torchvision" or not {*_FILES} <= remotes.keys():
        names = [name for name in remotes if name not in _BETONS]
    else:
        names = [name for name in remotes if name not in _TABLES]
    if not {*names} - {SUMS}:
        clause = f"has neither {' and '.join(_FILES)} nor a table ({', '.join(_TABLES)})"
        fix = (CONVERT_HINT, Hint("it makes the two .beton files; upload DST"))
        raise store.make_error("", clause, fix)
    if empty := [name for name in names if not remotes[name].size]:
        raise store.make_error(empty[0], "is empty")
    return tuple(remotes[name] for name in names)


def list_contents(store: Store, heads: Sequence[RemoteFile], table_name: str) -> Contents:
    """Return all files of a dataset; reads its tables.

    Raises NotReadyError if a file cannot be fetched, or a table is wrong or lists a missing file.
    """
    with atomic.make_temporary_folder() as folder:
        tables = [head for head in heads if head.name.lower().endswith(TABLES)]
        names: dict[str, None] = {}
        sums: dict[str, str] = {}
        for head in heads:
            if head.name == SUMS:
                sums = _parse_sums(store, head)
            elif head in tables:
                only = "" if table_name else Path(head.name).stem
                path = folder / head.name
                names |= dict.fromkeys(
                    _iterate_image_names(store, head, path, only, len(tables) > 1)
                )
    names = {name: None for name in names if name not in {head.name for head in heads}}
    images = list(_look_at_each(store.describe, names))
    if missing := [name for name, image in zip(names, images, strict=True) if image is None]:
        clause = f"is missing (in total, {len(missing):,} of the {len(names):,} files in the table)"
        raise store.make_error(missing[0], clause)
    return Contents(tuple(heads), tuple(image for image in images if image), sums)


def _find_present(store: Store, table_name: str) -> list[RemoteFile]:
    """Return the files at the URL that may describe the dataset."""
    forbidden: list[ForbiddenError] = []

    def look(name: str) -> RemoteFile | None:
        try:
            return store.describe(name)
        except ForbiddenError as error:
            forbidden.append(error)
            return None

    names = (table_name, SUMS) if table_name else (*_BETONS, *_TABLES, SUMS)
    present = [remote for remote in _look_at_each(look, names) if remote]
    if not {remote.name for remote in present} - {SUMS} and forbidden:
        raise forbidden[0]
    return present


def _look_at_each(
    look: Callable[[str], RemoteFile | None], names: Iterable[str]
) -> Iterator[RemoteFile | None]:
    """Yield the file with each name, or None; 16 requests run at a time, and up to 1,000 wait."""
    remaining = iter(names)
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        while some := list(islice(remaining, _MAX_QUEUED)):
            yield from pool.map(look, some)


def _parse_sums(store: Store, head: RemoteFile) -> dict[str, str]:
    """Return the digests that a file in the format of sha256sum lists, by name."""
    if head.size > MAX_BYTES:
        raise store.make_error(head.name, f"is larger than {MAX_BYTES:,} bytes")
    lines = store.read(head, 0, head.size).decode(errors="replace").splitlines()
    matches = [re.fullmatch(r"([0-9a-fA-F]{64}) [ *](.+)", line) for line in lines if line.strip()]
    if not all(matches):
        number = matches.index(None) + 1
        fix = Command(f"sha256sum * > {SUMS}")
        raise store.make_error(head.name, f"line {number} is not a SHA-256 and a name", fix)
    sums = {os.path.normpath(match[2]): match[1].lower() for match in matches if match}
    sums.pop(SUMS, None)  # the shell creates it, still empty, before it expands `*`
    return sums


def _iterate_image_names(
    store: Store, head: RemoteFile, path: Path, only: str, has_other_tables: bool
) -> Iterator[str]:
    """Yield the names of the images in a table fetched to `path`; they must be below its folder.

    `only` is its only split, if given. With `has_other_tables`, metadata may lack labels.
    """
    if head.size > _MAX_TABLE_BYTES:
        raise store.make_error(head.name, f"is larger than {_MAX_TABLE_BYTES:,} bytes")
    path.write_bytes(store.read(head, 0, head.size))
    try:
        if has_other_tables and head.name in table.METADATA and not table.has_labels(path):
            return
        rows = table.read_rows(path, only, is_local=False)
    except NotReadyError as error:
        raise error.with_path_replaced(path, f"{store.address}/{head.name}") from None
    for row in rows:
        name = os.path.normpath(row.name)
        is_below = not (os.path.isabs(name) or name.startswith(".."))
        if not (is_below and name.isprintable() and name.count("/") <= _MAX_DEPTH):
            clause = f"names no file below its folder in line {row.line}: {row.name[:200]}"
            rule = f"paths are relative to the table's folder, at most {_MAX_DEPTH} folders deep"
            raise store.make_error(head.name, clause, Hint(rule))
        yield name
