"""Write files that are either complete or absent, even if writing is interrupted."""

import errno
import glob
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_PARTIAL_FILE = re.compile(r"(.+)\.[0-9a-f]{16}\.part")


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears as `path` only once its bytes are on disk.

    Readers see either the old file or the new one. If the block raises or the disk is full, the old
    file remains. A killed process leaves a partial file. Its name is random, so that several
    processes can write at once and nobody can plant a link in its place. Raises OSError for a
    device file, which root could replace.
    """
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file, or replace one."""
    with replace_file(path) as file:
        file.write(text.encode())


@contextmanager
def create_folder(path: Path) -> Iterator[Path]:
    """Create a folder that appears as `path` only at the end of the block.

    If the block raises, its content is deleted. A killed process leaves a partial folder, which the
    next call deletes, so two processes must not create the same folder at once.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}.part"):
        delete_folder(left)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        part.mkdir(parents=True)
        yield part
        part.rename(path)
    finally:
        delete_folder(part)


@contextmanager
def make_temporary_folder() -> Iterator[Path]:
    """Create a folder in TMPDIR that is deleted at the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="resnet-recipes-"))
    try:
        yield folder
    finally:
        delete_folder(folder)


def delete_folder(folder: Path) -> None:
    """Delete a folder; ignore errors."""
    with suppress(OSError):  # `ignore_errors` does not cover errors of fstat
        shutil.rmtree(folder, ignore_errors=True)


def delete_parts(folder: Path, of: str = "") -> None:
    """Delete partial files that killed processes left in a folder, optionally of one name only."""
    for path in folder.iterdir():
        part = _PARTIAL_FILE.fullmatch(path.name)
        if part and of in ("", part[1]):
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush renames in a folder to disk, if the disk can; some network disks cannot.

    Raises OSError if the folder cannot be opened.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
