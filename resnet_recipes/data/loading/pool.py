"""Threads or processes that fill batches."""

import signal
import warnings
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from typing import NamedTuple

import torch

from resnet_recipes.base.errors import TrainingError
from resnet_recipes.base.processes import STOP_SIGNALS, ProcessPool
from resnet_recipes.data.loading.slots import Slots
from resnet_recipes.data.loading.storage import Storage, UnreadableError, fill
from resnet_recipes.data.order import BatchOrder


class WorkerContext(NamedTuple):
    """The state shared by all workers of a loader."""

    storage: Storage
    slots: Slots
    skip_bad: bool

    def fill(self, slot: int, order: BatchOrder) -> list[int]:
        """Fill the rows of an order; return the indices of unreadable images that were replaced.

        Raises TrainingError if an image cannot be read or augmented: unlike some exceptions of
        augmentations, it can be pickled.
        """
        rows = self.slots.rows(slot, order)
        rows.reading[:] = True
        try:
            return fill(self.storage, rows, self.skip_bad)
        except UnreadableError as error:
            raise error.failure from None
        except (Exception, SystemExit) as error:  # augmentations may raise any exception
            path = self.storage.path(int(rows.indices[rows.reading.argmax()]))
            raise TrainingError(f"{path}: {type(error).__name__}: {error}") from None
        finally:
            rows.reading[:] = False


#: Images per task: few enough that workers finish a batch together, enough to make the overhead
#: negligible.
_TASK_SIZE = 32


class WorkerPool:
    """Workers that share one queue: threads or processes, as the storage requires.

    With 0 workers, a thread does the work. The first processes take 3 s to start, later ones a few
    milliseconds.
    """

    def __init__(self, context: WorkerContext, workers: int):
        self._workers = max(1, workers)
        self._fill = context.fill
        self._is_stuck = False
        if workers and not context.storage.in_threads:
            preload = "resnet_recipes.data.loading.server", type(context.storage).__module__
            self._executor: Executor = ProcessPool(workers, preload, context, prepare_worker)
            self._fill = WorkerContext.fill
        else:
            self._executor = ThreadPoolExecutor(self._workers, "loader")

    @property
    def processes(self) -> list[ForkServerProcess]:
        """The processes among the workers."""
        return self._executor.processes if isinstance(self._executor, ProcessPool) else []

    def submit(self, slot: int, order: BatchOrder) -> list[Future[list[int]]]:
        """Start filling a slot in parts; each future returns the indices of replaced images."""
        size = min(_TASK_SIZE, -(-len(order.indices) // self._workers))
        return [self._executor.submit(self._fill, slot, part) for part in order.split(size)]

    def close_after_death(self) -> str:
        """Close the pool and return how one of its processes died, as the rest of a sentence."""
        by_sentinel = {process.sentinel: process for process in self.processes}
        dead = [by_sentinel[sentinel] for sentinel in wait(by_sentinel, timeout=5)]
        # A thread of the executor also reads exit codes, and the second reader of a code gets 255.
        self.close()
        code = dead[0].exitcode if dead else None
        if code == -signal.SIGKILL:
            return "was killed by SIGKILL (out of memory? lower data.workers or data.prefetch)"
        if code and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def close(self, is_stuck: bool = False) -> None:
        """Stop the workers; safe to call twice.

        Kills processes. Waits for threads to finish, unless `is_stuck` is true, now or in an
        earlier call.
        """
        self._is_stuck |= is_stuck
        for process in self.processes:
            process.kill()  # it has no state that could be lost
        for process in self.processes if self._is_stuck else ():
            process.join(5)
        self._executor.shutdown(wait=not self._is_stuck, cancel_futures=True)


def prepare_worker() -> None:
    """Prepare a worker process: ignore STOP_SIGNALS and use one thread.

    When a complete job is stopped, the trainer still needs batches until it has saved a checkpoint.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)  # the workers already use all cores
    warnings.simplefilter("ignore")
