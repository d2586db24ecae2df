"""Worker processes, which end with the process that they work for."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import connection, parent_process

from resnet_recipes.base.errors import NotReadyError


def process_pool(
    count: int, preload: Sequence[str], start: Callable[..., None], *context: object
) -> ProcessPoolExecutor:
    """Return a pool of processes that call `start(*context)` first.

    They are forked from a small server that has imported the modules of `preload`, never from this
    process, whose threads make forking unsafe. Raises NotReadyError.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(list(preload))
    try:
        return ProcessPoolExecutor(count, server, partial(_start, start, *context))
    except OSError as error:  # semaphores are files there
        rule = f"cannot be written, and worker processes need it: {error.strerror}"
        mount = "mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm"
        fix = f"{mount};  without processes: data.workers=0, convert workers=1"
        raise NotReadyError.of("/dev/shm", None, rule, fix) from None


def _start(start: Callable[..., None], *context: object) -> None:
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    start(*context)


def _leave_with_parent() -> None:
    """Exit as soon as the parent of this worker has ended for any reason.

    Workers of a fork server wait for work without end, and the server for its workers.
    """
    if (parent := parent_process()) is not None:
        connection.wait([parent.sentinel])
    os._exit(1)
