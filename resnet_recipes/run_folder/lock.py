"""Lock a run folder against other runs, keep it open, and reject links in it."""

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self, TextIO

from resnet_recipes.base.errors import Command, Hint, NotReadyError, TrainingError
from resnet_recipes.base.processes import dies_with_parent
from resnet_recipes.base.reading import read_json
from resnet_recipes.run_folder import LOCK

#: Seconds to retry before a lock counts as held by another run. Listing runs holds it briefly.
MAX_RETRY_SECONDS = 1.0


def _try_lock(file: TextIO) -> bool:
    """Return whether the lock was acquired within MAX_RETRY_SECONDS."""
    deadline = time.monotonic() + MAX_RETRY_SECONDS
    while time.monotonic() < deadline:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.02)
    return False


def is_running(folder: Path) -> bool:
    """Return whether a process holds the run's lock."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(handle)


def find_holder(folder: Path) -> int:
    """Return the process ID of a run. Raises NotReadyError if it is unknown.

    The ID in the file is used only if that process holds the lock, because the file is untrusted.
    """
    facts = read_json(folder / LOCK, may_be_absent=True)
    pid = facts.get("pid")
    if not isinstance(pid, int) or not _has_open(pid, folder / LOCK):
        place = f"process {pid} on {facts.get('host')}"
        raise NotReadyError.at(folder, f"runs in {place}, which cannot be stopped from here")
    return pid


def _has_open(pid: int, path: Path) -> bool:
    try:
        return any(os.path.samefile(file, path) for file in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def _describe_holder(holder: str) -> str:
    try:
        facts = json.loads(holder)
        return f"process {facts['pid']} on {facts['host']}"
    except (ValueError, KeyError, TypeError):
        return "a run that has just started"


def reject_links(folder: Path) -> None:
    """Raise NotReadyError if a run folder contains anything but plain files and folders.

    A run writes to `lock`, `logs/`, `checkpoints/` and more. A link that someone else created there
    would redirect these writes.
    """
    if path := next(_find_special_files(folder), None):
        clause = "is a symbolic link or a special file: the run would write to its target"
        raise NotReadyError.at(path, clause, Hint("remove it, or replace it with its target"))


def _find_special_files(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _find_special_files(Path(entry))
            elif not entry.is_file(follow_symlinks=False):
                yield Path(entry)


class HeldFolder:
    """A run folder that is kept open, so that the system cannot reuse its inode."""

    def __init__(self, path: Path):
        self.path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    @property
    def is_in_place(self) -> bool:
        """Whether the path still refers to the folder that was opened."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._handle))
        except OSError as error:
            # a network disk that does not respond is not a replaced folder
            return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)

    def confirm(self) -> None:
        """Raise TrainingError if the folder was moved, deleted, or replaced by another."""
        if not self.is_in_place:
            raise TrainingError(f"{self.path} was moved, deleted or replaced during the run")


class LockedFolder(HeldFolder):
    """A run folder that no other command of this program trains or replaces until it is closed.

    The kernel releases RUN/lock when the process ends for any reason. The file remains.
    """

    def __init__(self, path: Path, must_end: bool = False):
        """Acquire the lock.

        Raises NotReadyError if another process holds it, which is named, or if the folder was
        replaced or cannot be locked. With `must_end`, the suggestion ends that process.
        """
        super().__init__(path)
        with ExitStack() as stack:
            stack.callback(os.close, self._handle)
            try:
                self._lock = stack.enter_context(open(LOCK, "a+", opener=self._open))
                if not _try_lock(self._lock):
                    self._lock.seek(0)
                    clause = f"is in use by {_describe_holder(self._lock.read())}"
                    stop = Command.of("resnet-recipes", "stop", str(path))
                    watch = Command.of("resnet-recipes", "watch", str(path))
                    fix = stop if must_end else (watch, Hint(f"`{stop}` saves and ends it"))
                    raise NotReadyError.at(path, clause, fix)
                if not self.is_in_place:
                    clause = "was replaced by another command of the same name"
                    raise NotReadyError.at(path, clause, Hint("run the command again"))
                self._lock.truncate(0)
                holder = {"host": socket.gethostname(), "pid": os.getpid()}
                json.dump(holder | {"is_in_sweep": dies_with_parent()}, self._lock)
                self._lock.flush()
            except OSError as error:  # the error does not name the file
                raise NotReadyError.at(path, f"cannot be locked: {error.strerror}") from None
            stack.pop_all()

    def _open(self, name: str, flags: int) -> int:
        """Open a file in this folder, even if the folder was moved."""
        return os.open(name, flags, 0o666, dir_fd=self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a network disk may fail only now; the lock is released anyway
            self._lock.close()
        os.close(self._handle)

    def __fspath__(self) -> str:
        return str(self.path)

    def move(self, path: Path) -> None:
        """Move the folder to another path without releasing the lock."""
        self.path = self.path.rename(path)
