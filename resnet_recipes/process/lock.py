"""The lock on a run folder: two runs that write to one folder would corrupt each other."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resnet_recipes.base.errors import NotReadyError


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold RUN/lock inside the context. Raises NotReadyError, naming the holder.

    The kernel releases it when the process dies, however it dies. The file stays: removing it would
    race with the next run.
    """
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            rule = f"is in use by another run ({_described(file.read())})"
            raise NotReadyError.at(folder, rule, "run.name=another") from None
        file.truncate(0)
        json.dump({"host": socket.gethostname(), "pid": os.getpid()}, file)
        file.flush()
        yield


def _described(holder: str) -> str:
    try:
        facts = json.loads(holder)
        return f"process {facts['pid']} on {facts['host']}"
    except (ValueError, KeyError, TypeError):
        return "it has just started"
