"""A pool of threads or processes that fill batches."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import TypeVar

from resnet_recipes.base.processes import process_pool
from resnet_recipes.data.loading import worker
from resnet_recipes.data.loading.worker import WorkerContext
from resnet_recipes.data.order import Job

#: Images that a worker gets at once: few enough that workers finish a batch together, enough to
#: make the overhead negligible.
_AT_ONCE = 32

Result = TypeVar("Result")

#: Held while `__main__` is hidden: several threads submit.
_hiding = threading.Lock()


class WorkerPool:
    """Workers that share one queue: threads or processes, as the storage needs.

    With 0, the caller does the work.

    The first processes take 3 s to start, later ones a few milliseconds.
    """

    def __init__(self, context: WorkerContext, workers: int):
        self._processes: dict[int, BaseProcess] = {}
        self._workers, self._fill = max(1, workers), context.fill
        self._is_stuck = False
        if not workers:
            self._executor: Executor = _Caller()
        elif context.storage.in_threads:
            self._executor = ThreadPoolExecutor(workers, "loader")
        else:
            preload = "resnet_recipes.data.loading.server", type(context.storage).__module__
            self._executor = process_pool(workers, preload, worker.start, context)
            self._fill = worker.fill_here
            # there is no public way to kill them before Python 3.14
            self._processes = self._executor._processes

    def submit(self, slot: int, job: Job) -> list[Future[list[int]]]:
        """Start filling a slot in parts; each yields the indices of images that were replaced."""
        size = min(_AT_ONCE, -(-len(job.indices) // self._workers))
        with _hidden_main():
            return [self._executor.submit(self._fill, slot, part) for part in job.parts(size)]

    def death(self) -> str:
        """Close the pool and return how one of its processes died."""
        by_sentinel = {process.sentinel: process for process in self._processes.values()}
        dead = [by_sentinel[sentinel] for sentinel in wait(by_sentinel, timeout=5)]
        self.close()
        code = dead[0].exitcode if dead else None
        if code == -signal.SIGKILL:
            return "was killed by SIGKILL (out of memory? lower data.workers or data.prefetch)"
        if code and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def close(self, stuck: bool = False) -> None:
        """Stop at once; safe to call twice.

        Waits for threads to finish their work, unless they are `stuck` or once were.
        """
        self._is_stuck |= stuck
        processes = list(self._processes.values())
        for process in processes:  # they hold nothing that could be lost
            process.kill()
        for process in processes if self._is_stuck else ():
            process.join(5)
        self._executor.shutdown(wait=not self._is_stuck, cancel_futures=True)


class _Caller(Executor):
    """Runs submitted work immediately."""

    def submit(self, fn: Callable[..., Result], /, *arguments: object) -> Future[Result]:
        future: Future[Result] = Future()
        future.set_result(fn(*arguments))
        return future


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Keep new processes from importing the main program, which would cost each of them seconds.

    It also lets a script train without `if __name__ == "__main__"`.
    """
    with _hiding:
        program = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = program
