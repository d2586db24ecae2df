"""Worker processes that exit when their parent exits."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import connection, parent_process
from multiprocessing.context import ForkServerContext, ForkServerProcess
from types import ModuleType
from typing import Any, TypeVar

from resnet_recipes.base.errors import Command, Hint, NotReadyError

T = TypeVar("T")

#: Signals that request a stop; those for a complete job also reach the workers of its processes.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)

_LIBC = ctypes.CDLL(None)

_context: object  # context of this process, if it belongs to a pool

#: Held while the main program is hidden, because several threads start processes.
_hide_lock = threading.Lock()


class _Process(ForkServerProcess):
    """A process that does not import the main program."""

    def start(self) -> None:
        with hide_main_program():
            super().start()


class _Launcher(ForkServerContext):
    """Creates the processes of one pool and keeps a list of them."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[_Process] = []

    def Process(self, **settings: Any) -> _Process:  # type: ignore[override] # noqa: N802
        """Return a new process; multiprocessing requires this name."""
        self.processes.append(_Process(**settings))
        return self.processes[-1]


class ProcessPool(ProcessPoolExecutor):
    """A pool of processes with a context: data for every task, sent to each process once.

    Each process first calls `start`. A small server that has imported the modules of `preload`
    forks them; this process never does, because its threads make forking unsafe. Raises
    NotReadyError if /dev/shm cannot be written.
    """

    def __init__(
        self,
        count: int,
        preload: Sequence[str],
        context: object,
        start: Callable[[], None] | None = None,
    ):
        self._launcher = _Launcher()
        self._launcher.set_forkserver_preload(list(preload))
        try:
            super().__init__(count, self._launcher, partial(_start_worker, context, start))
        except OSError as error:  # semaphores are files in /dev/shm
            clause = f"cannot be written, and worker processes need it: {error.strerror}"
            mount = Command("mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm")
            fix = (mount, Hint("without processes: data.workers=0, convert workers=1"))
            raise NotReadyError.at("/dev/shm", clause, fix) from None

    def submit(  # type: ignore[override]
        self, function: Callable[..., T], /, *arguments: Any
    ) -> Future[T]:
        """Call a function in one of the processes, with the context and these arguments."""
        return super().submit(_call_with_context, function, *arguments)

    @property
    def processes(self) -> list[ForkServerProcess]:
        """All processes started so far."""
        return [process for process in self._launcher.processes if process.pid]


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies (Linux).

    Orphaned ranks would continue to train.
    """
    if sys.platform == "linux":
        parent = os.getppid()
        _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def dies_with_parent() -> bool:
    """Return whether `die_with_parent` was called in this process."""
    number = ctypes.c_int()
    is_set = sys.platform == "linux" and _LIBC.prctl(2, ctypes.byref(number)) == 0
    return is_set and bool(number)  # PR_GET_PDEATHSIG


@contextmanager
def hide_main_program() -> Iterator[None]:
    """Keep processes started in this block from importing the main program, which takes seconds.

    Scripts can then also train without `if __name__ == "__main__"`. There is no public setting for
    this: multiprocessing looks at `sys.modules["__main__"]`.
    """
    with _hide_lock:
        program = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = program


def _start_worker(context: object, start: Callable[[], None] | None) -> None:
    global _context
    _context = context
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if start:
        start()


def _call_with_context(function: Callable[..., T], *arguments: object) -> T:
    return function(_context, *arguments)


def _leave_with_parent() -> None:
    """Wait until the parent of this worker has ended for any reason, then exit.

    Otherwise workers of a fork server would wait for work forever, and the server for its workers.
    """
    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
    os._exit(1)
