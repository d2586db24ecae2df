"""Flipped bits and full disks, for tests of files that must be complete or be rejected."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def flip_bit(path: Path, at: int, bit: int = 0) -> None:
    """Flip a bit of the byte at offset `at` of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


@contextmanager
def limit_file_size(size: int) -> Iterator[None]:
    """Limit the size of every file, in bytes, like a full disk; this affects pytest itself."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
