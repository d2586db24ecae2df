"""The processes behind a ring: started, given tasks, watched and stopped."""

import multiprocessing
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from types import ModuleType

from resnet_recipes.data.workers import worker
from resnet_recipes.data.workers.worker import ANSWER, FAILED, SKIPPED, Bench, Task
from resnet_recipes.errors import TrainingError

#: Seconds without an answer after which reading is given up: a dead network drive waits for ever.
PATIENCE = 300.0


class Crew:
    """Workers that take tasks from one pipe, whoever is free first, and answer through another.

    They are forked from a small server process (`forkserver`), never from the trainer, whose threads make forking unsafe.
    """

    def __init__(self, bench: Bench, workers: int):
        """Start the workers: 3 s for the first crew of a process, and some milliseconds per worker."""
        self._bench = bench
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["resnet_recipes.data.workers.server"])
        tasks, self._tasks = context.Pipe(duplex=False)
        self._answers, answers = context.Pipe(duplex=False)
        self._processes = [context.Process(target=worker.main, args=(number, bench, tasks, answers), daemon=True)
                           for number in range(workers)]
        # Runs at the latest when the trainer exits, before multiprocessing sends its daemons a SIGTERM, which ours ignore.
        self.stop = Finalize(self, _stop, (self._processes, self._tasks, self._answers), exitpriority=100)
        self._poll = select.poll()
        self._poll.register(self._answers, select.POLLIN)
        with _hidden_main():
            for process in self._processes:
                process.start()
                self._poll.register(process.sentinel, select.POLLIN)
        tasks.close()
        answers.close()

    def send(self, task: Task) -> None:
        """Give the workers a task."""
        os.write(self._tasks.fileno(), Task.layout.pack(*task))

    def receive(self) -> tuple[int, list[int]]:
        """Wait for an answer; return the ticket of its task, and the images that were skipped. Raises TrainingError if there is none."""
        ready = {descriptor for descriptor, _ in self._poll.poll(PATIENCE * 1000)}
        if not ready:
            raise TrainingError(f"no image has been read for {PATIENCE:g} s; the workers are stuck at {self._in_hand()}")
        answer = os.read(self._answers.fileno(), ANSWER.size) if self._answers.fileno() in ready else b""
        if not answer:
            raise TrainingError(self._obituary())
        ticket, kind, size = ANSWER.unpack(answer)
        text = os.read(self._answers.fileno(), size).decode(errors="ignore") if size else ""       # cut, maybe inside its last character
        if kind == FAILED:
            raise TrainingError(text)
        return ticket, [int(index) for index in text.split(",")] if kind == SKIPPED else []

    def _in_hand(self) -> str:
        """Name the images that are being read."""
        paths = [self._bench.source.reader.path(index) for index in self._bench.memory["now"].tolist() if index >= 0]
        return ", ".join(paths[:4]) or "no image"

    def _obituary(self) -> str:
        """Say which worker has ended, how, and over which image."""
        wait([process.sentinel for process in self._processes], timeout=5)          # its pipes close a moment before it is gone
        for number, process in enumerate(self._processes):
            if process.exitcode is not None:
                index = int(self._bench.memory["now"][number])
                image = f" while reading {self._bench.source.reader.path(index)}" if index >= 0 else ""
                return f"loader worker {number} was ended by {_cause(process.exitcode)}{image}"
        return "a loader worker has ended"


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Keep new processes from importing the program that started them: a trainer's imports cost each of them seconds.

    It also lets a script train without `if __name__ == "__main__"`.
    """
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


def _cause(exitcode: int) -> str:
    if exitcode == -signal.SIGKILL:
        return "SIGKILL (out of memory? data.workers or data.prefetch can be lowered)"
    return signal.Signals(-exitcode).name if exitcode < 0 else f"exit code {exitcode}"


def _stop(processes: list[BaseProcess], *pipes: Connection) -> None:
    """Kill the workers, which hold nothing that could be lost, and wait for their end."""
    started = [process for process in processes if process.pid is not None]
    for process in started:
        process.kill()
    for process in started:
        process.join()
    for pipe in pipes:
        pipe.close()
