"""A file that torch writes to, hashed on the way."""

import hashlib
from typing import Any, BinaryIO

import torch

State = dict[str, Any]  # nested dictionaries and lists of tensors, str, int, float, bool and None


class HashingFile:
    """A file that torch writes through, hashed on the way.

    Reading it back would cost as much as writing it.
    """

    def __init__(self, file: BinaryIO):
        self._file = file
        self._error: OSError | None = None
        self.digest = hashlib.sha256()
        self.bytes = 0

    def save(self, state: State) -> None:
        """Write the state. Raises OSError, which torch would turn into something unreadable."""
        try:
            torch.save(state, self)
        except Exception:
            if self._error is not None:
                raise self._error from None
            raise

    def write(self, data: bytes) -> int:
        """Write and hash."""
        try:
            count = self._file.write(data)
        except OSError as error:
            self._error = error
            raise
        self.digest.update(data)
        self.bytes += count
        return count

    def flush(self) -> None:
        """Do nothing: the file is flushed once, at its end."""
