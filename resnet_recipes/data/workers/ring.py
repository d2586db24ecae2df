"""A ring of batches in shared memory, which worker processes keep filled."""

from collections.abc import Iterable, Iterator

import torch

from resnet_recipes.data.base import RawBatch
from resnet_recipes.data.files.reader import UnreadableError
from resnet_recipes.data.order import Job
from resnet_recipes.data.shared import SharedArrays
from resnet_recipes.data.workers.crew import Crew
from resnet_recipes.data.workers.worker import Bench, Source, Task, fill, rows_of
from resnet_recipes.errors import TrainingError

#: Images in one task: few enough that workers finish a batch together, enough that messages cost nothing.
_CHUNK = 16

#: Tasks on their way at any time: what surely fits into a pipe, so that writing to it never waits.
_MAX_TASKS = 1000


class Ring:
    """Turns jobs into batches: uint8 NHWC rows that workers write in place, so that nothing is copied, stacked or pickled.

    Costs (prefetch + 1) * rows * pixels * pixels * 3 bytes of shared memory. The batch that was given out last is never overwritten.
    """

    def __init__(self, source: Source, rows: int, pixels: int, workers: int, prefetch: int):
        """Make room for batches of up to `rows` images of up to `pixels` a side; with no workers, they are filled in this process."""
        self.skipped: set[int] = set()             # indices of images that were replaced because they cannot be read
        self._workers = workers
        self._slots = prefetch + 1 if workers else 1
        self._chunk = max(min(_CHUNK, -(-rows // max(1, workers))), -(-rows * self._slots // _MAX_TASKS))
        memory = SharedArrays(pixels=("u1", (self._slots, rows * pixels**2 * 3)), labels=("i8", (self._slots, rows)),
                              indices=("i8", (self._slots, rows)), now=("i8", (max(1, workers),)), floor=("i8", (1,)))
        memory["now"][:] = -1
        self._bench = Bench(source, memory)
        self._crew: Crew | None = None
        self._pinned = 0                           # address of the memory that CUDA knows
        self._run = 0                              # which call of `run` may go on
        self._ticket = 0                           # of the next batch to be sent
        self._missing: dict[int, int] = {}         # tasks still to be answered, by ticket

    def run(self, jobs: Iterable[Job]) -> Iterator[RawBatch]:
        """Yield the batch of every job, in order. A new run ends an earlier one that was not read to its end."""
        self._run += 1
        return self._pipelined(iter(jobs), self._run) if self._workers else self._inline(jobs)

    def pin(self) -> None:
        """Lock the ring in RAM and make it known to CUDA, so that a GPU copies straight out of it, until it is closed."""
        whole = self._bench.memory.whole
        error = torch.cuda.cudart().cudaHostRegister(whole.ctypes.data, whole.nbytes, 0)
        if error.value:
            raise TrainingError(f"CUDA cannot pin {whole.nbytes / 2**30:.1f} GiB of batches (error {error.value}): lower data.prefetch")
        self._pinned = whole.ctypes.data

    def close(self) -> None:
        """Stop the workers at once; safe to call twice."""
        self._run += 1
        self._missing.clear()
        if self._crew is not None:
            self._crew.stop()
            self._crew = None
        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._pinned)
            self._pinned = 0

    def _inline(self, jobs: Iterable[Job]) -> Iterator[RawBatch]:
        for job in jobs:
            count = len(job.indices)
            self._bench.memory["indices"][0, :count] = job.indices
            try:
                self.skipped.update(fill(self._bench.source, rows_of(self._bench.memory, Task(0, 0, job.epoch, job.pixels, 0, count))))
            except UnreadableError as error:
                raise TrainingError(str(error)) from None
            yield self._batch(0, job)

    def _pipelined(self, jobs: Iterator[Job], run: int) -> Iterator[RawBatch]:
        if self._crew is None:
            self._crew = Crew(self._bench, self._workers)
        self._forget()
        sent: dict[int, Job] = {}
        ticket = self._ticket
        while True:
            while self._ticket < ticket + self._slots and (job := next(jobs, None)) is not None:
                sent[self._ticket] = job
                self._send(job)
            if ticket not in sent:
                return
            while self._missing[ticket]:
                self._receive()
            del self._missing[ticket]
            yield self._batch(ticket % self._slots, sent.pop(ticket))
            if run != self._run:
                raise RuntimeError("these batches ended when the loader was closed, or was asked for others")
            ticket += 1

    def _send(self, job: Job) -> None:
        slot, count = self._ticket % self._slots, len(job.indices)
        self._bench.memory["indices"][slot, :count] = job.indices
        starts = range(0, count, self._chunk)
        for start in starts:
            self._crew.send(Task(self._ticket, slot, job.epoch, job.pixels, start, min(self._chunk, count - start)))
        self._missing[self._ticket] = len(starts)
        self._ticket += 1

    def _receive(self) -> None:
        try:
            ticket, skipped = self._crew.receive()
        except TrainingError:
            self.close()
            raise
        self._missing[ticket] -= 1
        self.skipped.update(skipped)

    def _forget(self) -> None:
        """Drop what an earlier run has asked for: its slots are needed."""
        self._bench.memory["floor"][0] = self._ticket
        while any(self._missing.values()):
            self._receive()
        self._missing.clear()

    def _batch(self, slot: int, job: Job) -> RawBatch:
        """Return the slot as tensors that look at it."""
        rows = rows_of(self._bench.memory, Task(0, slot, job.epoch, job.pixels, 0, len(job.indices)))
        return RawBatch(torch.from_numpy(rows.pixels).permute(0, 3, 1, 2), torch.from_numpy(rows.labels))

