"""Files that are whole or absent, whatever happens while they are written."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the name `path` at the end of the block, when its bytes are on the disk.

    Readers see the old file or the new one. An exception in the block, or a full disk, leaves the old one; a kill leaves `*.tmp`
    besides, named after this process and host: several may write at once.
    """
    part = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file, or replace one. Raises OSError."""
    with replacing(path) as file:
        file.write(text.encode())


def sync_folder(folder: Path) -> None:
    """Put renames in a folder on the disk, on file systems that can; some network file systems cannot, and keep their files anyway."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
