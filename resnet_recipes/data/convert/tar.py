"""List the files in an untrusted tar file: all of them, or raise an error."""

import os
import tarfile
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple

from resnet_recipes.base.reading import open_regular


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    place: int  # byte of the archive where its content starts
    size: int  # bytes


def list_members(path: Path) -> Iterator[Member]:
    """Yield the files of an archive. Raises OSError, or ValueError with a phrase for the user.

    Python's tarfile treats a damaged header as the end of the archive, so that end is checked.
    """
    with open_regular(path) as raw, BufferedReader(raw, 1 << 16) as file:
        total, end = os.fstat(raw.fileno()).st_size, 0
        for member in _list_headers(file):
            name = member.name[:200]
            if member.issparse() or not (member.isfile() or member.isdir()):
                raise ValueError(f"{name} is a link, a sparse file or a device")
            size = member.size if member.isfile() else 0
            end = member.offset_data + -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
            if size < 0 or end > total:
                raise ValueError(f"it is truncated, or the size of {name} is wrong")
            if member.isfile():
                yield Member(member.name, member.offset_data, size)
        file.seek(end)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise ValueError(f"it is damaged or truncated at byte {end:,}")
        while rest := file.read(1 << 20):
            if rest.count(0) < len(rest):
                raise ValueError(f"it continues after its end marker, at byte {file.tell():,}")


def _list_headers(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    try:
        with tarfile.open(fileobj=file, mode="r:", encoding="utf-8") as archive:
            while member := archive.next():
                yield member
    except (tarfile.TarError, ArithmeticError, RecursionError) as error:
        raise ValueError(str(error)) from None
