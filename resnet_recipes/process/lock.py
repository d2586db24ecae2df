"""The lock on a run folder: two runs that write to one folder would corrupt each other."""

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Self, TextIO

from resnet_recipes.errors import NotReadyError, Problem


class RunLock:
    """Holds RUN/lock while in use; the kernel releases it when the process dies, however it dies."""

    def __init__(self, folder: Path):
        self.path = folder / "lock"
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        """Take the lock. Raises NotReadyError, naming the holder."""
        self._file = self.path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            rule = f"is in use by another run ({_described(self._file.read())})"
            self._file.close()
            raise NotReadyError([Problem(str(self.path.parent), None, rule, "run.name=another")]) from None
        self._file.truncate(0)
        json.dump({"host": socket.gethostname(), "pid": os.getpid()}, self._file)
        self._file.flush()
        return self

    def __exit__(self, *_: object) -> None:
        """Release it; the file stays, since removing it would race with the next run."""
        if self._file is not None:
            self._file.close()


def _described(holder: str) -> str:
    try:
        facts = json.loads(holder)
        return f"process {facts['pid']} on {facts['host']}"
    except (ValueError, KeyError, TypeError):
        return "it has just started"
