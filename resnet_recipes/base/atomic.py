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

_PART = re.compile(r"(.+)\.[0-9a-f]{16}\.part")


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that gets its name `path` only when its bytes are on disk.

    Readers see either the old file or the new one. An exception in the block, or a full disk,
    leaves the old one. A killed process also leaves a part file; its name is random, so that
    several processes can write at once and nobody can plant a link in its place. A device, which
    root could replace, is rejected.
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
    """Write a text file, or replace one. Raises OSError."""
    with replace_file(path) as file:
        file.write(text.encode())


@contextmanager
def create_folder(path: Path) -> Iterator[Path]:
    """Create a folder that gets its name `path` only at the end of the block.

    An exception in the block leaves nothing. A killed process leaves a part, which the next process
    deletes, so two processes must not create the same folder at once. Raises OSError.
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
    """Create a folder in TMPDIR that is deleted at the end of the block. Raises OSError."""
    folder = Path(tempfile.mkdtemp(prefix="resnet-recipes-"))
    try:
        yield folder
    finally:
        delete_folder(folder)


def delete_folder(folder: Path) -> None:
    """Delete a folder as far as that is possible; its contents are of no use to anybody."""
    with suppress(OSError):  # `ignore_errors` raises what fstat does
        shutil.rmtree(folder, ignore_errors=True)


def delete_parts(folder: Path, of: str = "") -> None:
    """Delete the half-written files of killed processes in a folder, or only those of one name.

    Raises OSError.
    """
    for path in folder.iterdir():
        part = _PART.fullmatch(path.name)
        if part and of in ("", part[1]):
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush renames in a folder to disk.

    Network file systems that cannot do this keep their files anyway.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
