"""List the files in an untrusted tar file: all of them, or raise an error."""

import os
import re
import tarfile
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.reading import open_regular

_BLOCK = tarfile.BLOCKSIZE
_LONGEST = 1 << 16  # bytes of a name or an extended header
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)

#: Header types that describe the next member, the archive, or a link target.
_EXTENDED, _IGNORED = (tarfile.XHDTYPE,), (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK)
_LONG_NAME = (tarfile.GNUTYPE_LONGNAME,)

#: The start of a record in an extended header: its length and key.
_RECORD = re.compile(rb"([1-9]\d{0,5}) ([^=\n]{1,200})=")


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    place: int  # byte of the archive where its content starts
    size: int  # bytes


def list_members(path: Path) -> Iterator[Member]:
    """Yield the files of an archive. Raises OSError, or ValueError with a phrase for the user.

    Python's tarfile treats a damaged header as the end of the archive. Neither tarfile nor
    libarchive requires the closing blocks, without which the archive is truncated.
    """
    with open_regular(path) as raw, BufferedReader(raw, 1 << 16) as file:
        end, later = os.fstat(file.fileno()).st_size, dict[bytes, bytes]()
        while (block := file.read(_BLOCK)) != bytes(_BLOCK):
            place = file.tell()
            if len(block) < _BLOCK:
                raise ValueError("it is truncated: the blocks that close it are missing")
            try:
                header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                raise ValueError(f"{error} before byte {place:,}") from None
            name = os.fsdecode(later.get(b"path", os.fsencode(header.name)))
            size = int(later[b"size"]) if later.get(b"size", b"").isdigit() else header.size
            stop = place + -(-size // _BLOCK) * _BLOCK
            if size < 0 or stop > end:
                raise ValueError(f"it is truncated, or the size of {name[:200]} is wrong")
            if header.type in _FILES and not any(key.startswith(b"GNU.sparse") for key in later):
                yield Member(name, place, size)
                later = {}
            elif header.type in (*_EXTENDED, *_LONG_NAME, *_IGNORED):
                later |= _parse_header(header.type, file.read(min(size, _LONGEST + 1)))
            elif header.type == tarfile.DIRTYPE:
                later = {}
            else:
                raise ValueError(f"{name[:200]} is a link, a sparse file or a device")
            file.seek(stop)
        while rest := file.read(1 << 20):
            if rest.count(0) < len(rest):
                raise ValueError(f"it goes on after its closing blocks, at byte {file.tell():,}")


def _parse_header(kind: bytes, content: bytes) -> dict[bytes, bytes]:
    """Return the values that a header sets for the next member. Raises ValueError."""
    if len(content) > _LONGEST:
        raise ValueError(f"it has a name of more than {_LONGEST:,} bytes")
    if kind in _LONG_NAME:
        return {b"path": content.partition(b"\0")[0]}
    records: dict[bytes, bytes] = {}
    while kind in _EXTENDED and content:
        record = _RECORD.match(content)
        length = int(record[1]) if record else 0
        if not record or content[length - 1 : length] != b"\n" or length <= record.end():
            raise ValueError("it has a damaged extended header")
        records[record[2]] = content[record.end() : length - 1]
        content = content[length:]
    return records
