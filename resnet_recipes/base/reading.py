"""Read untrusted files: regular files only, with limits on size, depth and numbers."""

import errno
import json
import math
import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, NoReturn

from resnet_recipes.base.errors import NotReadyError

MAX_BYTES = 64 << 20  # size limit of files read into memory; a million class names take 30 MB
MAX_DEPTH = 32  # levels of lists and objects in JSON


def open_regular(path: str | os.PathLike[str], max_bytes: float = math.inf) -> FileIO:
    """Open a regular file of at most `max_bytes` bytes for unbuffered reading.

    Raises OSError for anything else, ValueError if the path contains NUL. A FIFO does not block.
    """
    file = FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    facts = os.fstat(file.fileno())
    if stat.S_ISREG(facts.st_mode) and facts.st_size <= max_bytes:
        return file
    file.close()
    if stat.S_ISREG(facts.st_mode):
        raise OSError(errno.EFBIG, f"Larger than {max_bytes:,} bytes", str(path))
    raise OSError(errno.EINVAL, "Not a regular file", str(path))


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of at most `max_bytes` bytes.

    Raises NotReadyError if it is another kind of file, is larger or cannot be read.
    """
    try:
        with BufferedReader(open_regular(path, max_bytes)) as file:
            # read(max_bytes) would first allocate a buffer of that size
            return file.read(min(max_bytes, os.fstat(file.fileno()).st_size))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise make_read_error(path, error) from None


def read_json(
    path: Path, max_bytes: int = MAX_BYTES, may_be_absent: bool = False
) -> dict[str, Any]:
    """Return the JSON object in a file, within the limits of `parse_json`.

    An absent file is an empty object if `may_be_absent`. Raises NotReadyError if the file cannot be
    read or has no such object.
    """
    if may_be_absent and not os.path.lexists(path):
        return {}
    try:
        value = parse_json(read_bytes(path, max_bytes).decode())
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
    except ValueError as error:
        raise make_read_error(path, error) from None
    return value


def parse_json(text: str) -> Any:
    """Return a JSON value of finite numbers, 64-bit integers and at most MAX_DEPTH levels.

    Raises ValueError with a phrase for the user.
    """
    try:
        value = json.loads(
            text, parse_constant=_reject_constant, parse_float=_parse_float, parse_int=_parse_int
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError(_DEEP) from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item for group in level for item in _list_items(group) if isinstance(item, dict | list)
        ]
        if not level:
            return value
    raise ValueError(_DEEP)


def make_read_error(path: Path, error: OSError | ValueError) -> NotReadyError:
    """Return a NotReadyError that explains why a file cannot be read."""
    reason = getattr(error, "strerror", None) or error
    return NotReadyError.at(path, f"cannot be read: {reason}")


_DEEP = f"more than {MAX_DEPTH} levels of lists and objects"


def _list_items(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _parse_float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _reject_constant(text[:20])


def _parse_int(text: str) -> int:
    value = int(text) if len(text) <= 20 else 1 << 64
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError("an integer of more than 64 bits")
    return value
