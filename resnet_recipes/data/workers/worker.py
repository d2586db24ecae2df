"""A loader worker: a process that fills rows of shared batches."""

import os
import signal
import struct
import threading
import warnings
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch

from resnet_recipes.data.files.reader import Reader, Rows, UnreadableError, fill_skipping
from resnet_recipes.data.shared import SharedArrays

#: Signals that stop a whole job, and reach its workers as well.
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)

#: An answer is one write to a pipe that all workers share: ticket, kind, bytes of the text that follows.
ANSWER = struct.Struct("qcq")
DONE, SKIPPED, FAILED = b"d", b"s", b"f"

#: Writes of at most this size to a pipe are never mixed with others' (POSIX promises 512 bytes, Linux 4096).
_MAX_ANSWER = 512


class Task(NamedTuple):
    """Some rows of a batch. Travels as one read or write of a pipe that all workers share."""

    ticket: int           # of the batch
    slot: int             # where its rows are
    epoch: int
    side: int             # pixels
    first: int            # row
    count: int            # rows

    layout = struct.Struct("6q")


class Source(NamedTuple):
    """What is read, and what happens to images that cannot be."""

    reader: Reader
    examples: int
    skip_bad: bool = False


class Bench(NamedTuple):
    """What all workers work with."""

    source: Source
    memory: SharedArrays      # pixels [slots, bytes], labels and indices [slots, rows], now [workers], floor [1]


def rows_of(memory: SharedArrays, task: Task, worker: int = 0) -> Rows:
    """Return the rows of a task, as views of the shared memory."""
    rows, size = slice(task.first, task.first + task.count), task.side * task.side * 3
    pixels = memory["pixels"][task.slot, rows.start * size:rows.stop * size].reshape(task.count, task.side, task.side, 3)
    return Rows(memory["indices"][task.slot, rows], task.epoch, pixels, memory["labels"][task.slot, rows], memory["now"][worker:worker + 1])


def fill(source: Source, rows: Rows) -> list[int]:
    """Fill the rows; return the indices of images that were skipped. Raises UnreadableError where skipping is not allowed."""
    try:
        source.reader.fill(rows)
    except UnreadableError:
        if not source.skip_bad:
            raise
        return fill_skipping(source.reader, rows, source.examples)
    return []


def main(number: int, bench: Bench, tasks: Connection, answers: Connection) -> None:
    """Serve tasks until the trainer closes the pipe, or is gone.

    Ignores STOPS: when a whole job is told to stop, the trainer still needs batches until it has saved.
    """
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    torch.set_num_threads(1)                       # the workers are the parallelism
    warnings.simplefilter("ignore")
    while message := os.read(tasks.fileno(), Task.layout.size):
        task = Task(*Task.layout.unpack(message))
        wanted = task.ticket >= bench.memory["floor"][0]
        kind, text = _answer(bench, rows_of(bench.memory, task, number)) if wanted else (DONE, "")
        text = _cut(text.encode(errors="replace"), whole_numbers=kind == SKIPPED)
        bench.memory["now"][number] = -1
        os.write(answers.fileno(), ANSWER.pack(task.ticket, kind, len(text)) + text)


def _answer(bench: Bench, rows: Rows) -> tuple[bytes, str]:
    """Fill the rows; every failure becomes a sentence, since not every exception can travel between processes."""
    try:
        skipped = fill(bench.source, rows)
    except UnreadableError as error:
        return FAILED, str(error)
    except BaseException as error:                 # StopIteration, SystemExit and what else a user's augmentation may raise
        return FAILED, f"{bench.source.reader.path(int(rows.now[0]))}: {type(error).__name__}: {error}"
    return (SKIPPED, ",".join(map(str, skipped))) if skipped else (DONE, "")


def _cut(text: bytes, whole_numbers: bool) -> bytes:
    """Return what fits into an answer; of a list of numbers, no half one."""
    room = _MAX_ANSWER - ANSWER.size
    if len(text) <= room:
        return text
    return text[:room].rpartition(b",")[0] if whole_numbers else text[:room]


def _leave_with_parent() -> None:
    """End this process as soon as the trainer has ended, however that came about."""
    connection.wait([parent_process().sentinel])
    os._exit(1)
