"""Open a file that may not be a regular one."""

import errno
import os
import stat
from io import FileIO


def open_regular(path: str | os.PathLike) -> FileIO:
    """Open a regular file for reading, unbuffered; raises OSError for a FIFO, socket or device, without blocking."""
    file = FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return file
