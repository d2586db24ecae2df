"""Files that are whole or absent, whatever happens while they are written."""

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

_PART = re.compile(r".+\.[0-9a-f]{16}\.part")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the name `path` at the end of the block, when its bytes are on the disk.

    Readers see the old file or the new one. An exception in the block, or a full disk, leaves the old one; a kill also
    leaves a part with a random name: several may write at once, and a link cannot be put in the way.
    """
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
    with replacing(path) as file:
        file.write(text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty if there is none, or something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def delete_parts(folder: Path) -> None:
    """Delete what killed processes left half written in a folder. Raises OSError."""
    for path in folder.iterdir():
        if _PART.fullmatch(path.name):
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Put renames in a folder on the disk; network file systems that cannot keep their files anyway."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
