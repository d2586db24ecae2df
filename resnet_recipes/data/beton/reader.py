"""Batches from a .beton file, decoded by threads that do not hold the interpreter's lock."""

import contextlib
import mmap
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from resnet_recipes.data.base import RawBatch
from resnet_recipes.data.beton.file import JPEG, Beton
from resnet_recipes.data.beton.native import COMPLAINTS, compiled_decode
from resnet_recipes.data.crop import Cuts
from resnet_recipes.data.order import Job
from resnet_recipes.errors import TrainingError

#: Seconds without a decoded batch after which something must be wrong: a dead network file system, not a slow one.
PATIENCE = 300


#: (epoch, indices, sizes) -> Cuts; indices int64 [N], sizes int64 [N, 2].
Cutter = Callable[[int, np.ndarray, np.ndarray], Cuts]

#: (image, epoch, index) -> image of the same size.
Augment = Callable[[Image.Image, int, int], Image.Image]


class DamagedError(TrainingError):
    """A sample that is not what was written."""

    def __init__(self, path: Path, sample: int, complaint: str):
        self.complaint = complaint
        super().__init__(f"{path}: sample {sample} is damaged: {complaint}. Make the file again:  resnet-recipes convert")


class Room(NamedTuple):
    """What a reader may use."""

    threads: int
    ahead: int            # batches decoded before they are asked for
    rows: int             # examples of the largest batch
    side: int             # pixels of the largest image


class BetonReader:
    """Decodes jobs into a ring of reused buffers, a few batches ahead, pieces of several batches at once.

    The buffer of a batch is written again only after the batch after the next has been asked for. Each sample is compared with its CRC-32
    (where the file has a note) when it is read for the first time, and with its own header and the decoder's verdict always.
    """

    def __init__(self, beton: Beton, cutter: Cutter, room: Room, augment: Augment | None = None):
        self._beton, self._cutter, self._room, self._augment = beton, cutter, room, augment
        self._decode = compiled_decode()
        self._content = np.asarray(beton.content)
        self._samples = np.column_stack([beton.starts, beton.lengths, beton.modes.astype(np.int64), beton.sizes])
        self._unchecked = np.full(len(beton), beton.checksums is not None)
        jpegs = beton.sizes[beton.modes == JPEG]
        self._scratch_bytes = 3 * int(jpegs.prod(axis=1).max(initial=1))
        self._local = threading.local()
        self._threads = ThreadPoolExecutor(room.threads, "beton")
        self.streamed = False          # True: the file does not fit into memory, so ask for what comes next ahead of decoding it

    def batches(self, jobs: Iterator[Job]) -> Iterator[RawBatch]:
        """Yield one batch per job, in order; raises TrainingError, naming the sample, for one that cannot be decoded."""
        ring = [self._slot() for _ in range(self._room.ahead + 2)]
        pending: deque[tuple[RawBatch, list[Future]]] = deque()
        try:
            for place, job in enumerate(jobs):
                pending.append(self._start(job, *ring[place % len(ring)]))
                if len(pending) > self._room.ahead:
                    yield self._finished(*pending.popleft())
            while pending:
                yield self._finished(*pending.popleft())
        finally:
            rest = [future for _, futures in pending for future in futures]
            for future in rest:
                future.cancel()
            wait(rest, PATIENCE)           # the buffers must outlive whoever writes to them

    def complaint(self, index: int) -> str | None:
        """Read one sample as training does, and say what is wrong with it; None if nothing is. Several threads may call it at once."""
        try:
            self._fill(np.empty((1, self._room.side, self._room.side, 3), np.uint8), np.array([index]), 0)
        except DamagedError as error:
            return error.complaint
        return None

    def close(self) -> None:
        """Stop the threads; safe to call twice."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _slot(self) -> tuple[torch.Tensor, torch.Tensor]:
        pinned = torch.cuda.is_initialized()
        pixels = torch.empty(self._room.rows * self._room.side**2 * 3, dtype=torch.uint8, pin_memory=pinned)
        return pixels, torch.empty(self._room.rows, dtype=torch.int64, pin_memory=pinned)

    def _start(self, job: Job, pixels: torch.Tensor, labels: torch.Tensor) -> tuple[RawBatch, list[Future]]:
        """Hand the pieces of a job to the threads; its batch is a view of the slot."""
        count = len(job.indices)
        rows = pixels[: count * job.pixels**2 * 3].view(count, job.pixels, job.pixels, 3)
        labels = labels[:count]
        labels.numpy()[:] = self._beton.labels[job.indices]
        out = rows.numpy()
        step = -(-count // (2 * self._room.threads))
        pieces = [slice(at, at + step) for at in range(0, count, step)]
        futures = [self._threads.submit(self._fill, out[piece], job.indices[piece], job.epoch) for piece in pieces]
        return RawBatch(rows.permute(0, 3, 1, 2), labels), futures

    def _finished(self, batch: RawBatch, futures: list[Future]) -> RawBatch:
        for future in futures:
            try:
                future.result(PATIENCE)
            except TimeoutError as error:
                raise TrainingError(f"{self._beton.path}: nothing could be read for {PATIENCE} s. Is its disk still there?") from error
        return batch

    def _fill(self, out: np.ndarray, indices: np.ndarray, epoch: int) -> None:
        """Decode one piece of a batch; runs in a thread."""
        samples = self._samples[indices]
        if self.streamed:
            self._announce(samples)
        self._check(indices, samples)
        cuts = self._cutter(epoch, indices, samples[:, 3:])
        place, complaint = self._decode(self._content, samples, cuts.boxes, cuts.mirrored, self._scratch(), out)
        if complaint:
            raise DamagedError(self._beton.path, indices[place], COMPLAINTS[complaint])
        if self._augment:
            for row, index in zip(out, indices.tolist(), strict=True):
                row[:] = self._augment(Image.fromarray(row), epoch, index)

    def _check(self, indices: np.ndarray, samples: np.ndarray) -> None:
        """Compare samples with their checksums, the first time that this process reads them."""
        if self._beton.cut_short:
            raise DamagedError(self._beton.path, indices[0], "the file was cut short after it was opened")
        unread = self._unchecked[indices]
        for index, (start, length) in zip(indices[unread].tolist(), samples[unread, :2].tolist(), strict=True):
            if zlib.crc32(self._content[start : start + length]) != self._beton.checksums[index]:
                raise DamagedError(self._beton.path, index, "checksum mismatch")
        self._unchecked[indices] = False

    def _announce(self, samples: np.ndarray) -> None:
        """Ask the system to read all samples of a piece at once rather than each when it is touched."""
        with contextlib.suppress(OSError):
            for start, length in samples[:, :2].tolist():
                first = start // mmap.PAGESIZE * mmap.PAGESIZE
                self._beton.content._mmap.madvise(mmap.MADV_WILLNEED, first, start + length - first)

    def _scratch(self) -> np.ndarray:
        """Return this thread's room for one decoded JPEG."""
        if not hasattr(self._local, "scratch"):
            self._local.scratch = np.empty(self._scratch_bytes, np.uint8)
        return self._local.scratch
