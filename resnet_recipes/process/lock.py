"""The lock on a run folder: two runs that wrote into one would ruin each other."""

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Self, TextIO

from resnet_recipes.errors import NotReadyError, Problem


class RunLock:
    """Hold RUN/lock while in use; it is let go by the kernel when the process dies, however it dies."""

    def __init__(self, folder: Path):
        self.path = folder / "lock"
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        """Take the lock. Raises NotReadyError, saying who has it."""
        self._file = self.path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read()
            self._file.close()
            problem = Problem(str(self.path.parent), None, f"another run is writing here ({_described(holder)})", "run.name=another")
            raise NotReadyError([problem]) from None
        self._file.truncate(0)
        json.dump({"host": socket.gethostname(), "pid": os.getpid(), "boot": _boot()}, self._file)
        self._file.flush()
        return self

    def __exit__(self, *_: object) -> None:
        """Let go; the file stays, since removing it would race with the next one."""
        if self._file is not None:
            self._file.close()


def _described(holder: str) -> str:
    try:
        facts = json.loads(holder)
        return f"process {facts['pid']} on {facts['host']}"
    except (ValueError, KeyError, TypeError):
        return "it has just started"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
