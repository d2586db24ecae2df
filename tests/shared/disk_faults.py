"""Damaged files, full disks and special files, for tests of files that must be rejected."""

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def flip_bit(path: Path, at: int, bit: int = 0) -> None:
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


def create_special_file(path: Path, kind: str) -> Path:
    """Create a path of a kind that no run leaves behind."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            here = os.getcwd()
            os.chdir(path.parent)  # socket paths are limited to 107 bytes
            server.bind(path.name)
            os.chdir(here)
    elif kind == "sparse":
        path.touch()
        os.truncate(path, 60 << 30)
    else:
        path.symlink_to({"device": "/dev/zero", "nowhere": "/nowhere", "loop": path}[kind])
    return path
