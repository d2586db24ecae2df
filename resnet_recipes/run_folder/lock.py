"""The lock on a run folder: two runs that write to one folder would corrupt each other."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.run_folder.names import EXIT, LOCK

#: Seconds after which a lock is taken for another run's: who lists runs holds it for an instant.
PATIENCE = 1.0


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold RUN/lock inside the context. Raises NotReadyError, naming the holder.

    The kernel releases it when the process dies, however it dies. The file stays: removing it would
    race with the next run.
    """
    with (folder / LOCK).open("a+") as file:
        if not _taken(file):
            file.seek(0)
            rule = f"is in use by another run ({_described(file.read())})"
            fix = "wait until that run ends; a new run takes another name: run.name=another"
            raise NotReadyError.at(folder, rule, fix)
        file.truncate(0)
        json.dump({"host": socket.gethostname(), "pid": os.getpid()}, file)
        file.flush()
        yield


@contextmanager
def begun(folder: Path) -> Iterator[None]:
    """Hold the lock for a session of the run, and forget how the last one ended."""
    with locked(folder):
        (folder / EXIT).unlink(missing_ok=True)
        yield


def _taken(file: TextIO) -> bool:
    """Return whether the lock was taken, within PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(0.02)


def _described(holder: str) -> str:
    try:
        facts = json.loads(holder)
        return f"process {facts['pid']} on {facts['host']}"
    except (ValueError, KeyError, TypeError):
        return "it has just started"
