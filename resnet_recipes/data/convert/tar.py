"""List the files in an untrusted tar file: all of them, or raise an error."""

import os
import tarfile
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.reading import open_regular

_MAX_HEADER_BYTES = 1 << 14  # bytes of the headers of one file: long names, extended attributes


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    offset: int  # byte of the archive where its content starts
    size: int  # bytes


class _Headers(BufferedReader):
    """A file that limits the bytes of a header: tarfile allocates any size that a header claims."""

    bytes_left = 0

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= self.bytes_left:
            raise ValueError
        self.bytes_left -= size
        return super().read(size)


def iterate_members(path: Path) -> Iterator[Member]:
    """Yield the files of an archive.

    Raises ValueError, with a phrase for the user, if it is damaged or contains something else,
    OSError if it cannot be read. Python's tarfile treats a damaged header as the end of the
    archive, so that end is checked.
    """
    with open_regular(path) as file, _Headers(file) as headers:
        total = os.fstat(file.fileno()).st_size
        end = 0
        while member := _read_header(headers, end):
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


def _read_header(file: _Headers, offset: int) -> tarfile.TarInfo | None:
    """Return the member that starts at a byte; None at the end, and for most kinds of damage.

    An archive is opened for each member, because tarfile keeps all members of an archive.
    """
    file.seek(offset)
    file.bytes_left = _MAX_HEADER_BYTES
    try:
        with tarfile.open(fileobj=file, mode="r:", encoding="utf-8") as archive:
            return archive.next()
    except (tarfile.TarError, ValueError, ArithmeticError, RecursionError):
        clause = (
            f"its header at byte {offset:,} is damaged, or longer than {_MAX_HEADER_BYTES:,} bytes"
        )
        raise ValueError(clause) from None
