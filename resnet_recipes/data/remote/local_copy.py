"""The local copy of a dataset: fetched in pieces, resumable, and checked.

Every version of the dataset has a separate folder, so that versions are never mixed. The folder is
named VERSION.part until the copy is complete.
"""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from resnet_recipes.base.errors import Hint, NotReadyError, Value
from resnet_recipes.base.text import Progress, do_nothing
from resnet_recipes.data.beton import ALLOCATION, HEADER, METADATA_START, SAMPLE, VERSION
from resnet_recipes.data.remote import disk
from resnet_recipes.data.remote.base import RemoteFile, Store
from resnet_recipes.data.remote.contents import PARALLEL_REQUESTS, Contents

PIECE_BYTES = 8 << 20  # bytes per request
PART, _JOURNAL = ".part", ".journal"

#: Function that returns whether to stop; fetched pieces are kept.
IsStopped = Callable[[], bool]


class Piece(NamedTuple):
    """A part of a file."""

    file: RemoteFile
    start: int
    end: int

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.end - self.start


class Copy:
    """A local copy of a dataset, which may be incomplete."""

    def __init__(self, store: Store, contents: Contents, home: Path, version: str):
        """Copy `contents` of `store` to a folder in `home`, the folder of all its copies."""
        self.contents, self._store, self._home = contents, store, home
        self.final = home / version
        self._part = home / f"{version}{PART}"
        self._journal = home / f"{version}{_JOURNAL}"
        self._pieces = [
            Piece(remote, start, min(start + PIECE_BYTES, remote.size))
            for remote in contents.files
            for start in range(0, remote.size, PIECE_BYTES)
        ]
        self._key = hashlib.sha256(repr(contents.files).encode()).digest()

    @property
    def path(self) -> Path:
        """The folder where the files are now."""
        return self.final if self.final.is_dir() else self._part

    @property
    def fetched_bytes(self) -> int:
        """The number of bytes fetched."""
        return sum(self._pieces[number].size for number in self._read_journal())

    def outline(self, stopped: IsStopped) -> None:
        """Fetch the description of the images, then at most 64 pieces of content, until stopped.

        Raises NotReadyError if a file cannot be fetched or written. Afterwards all files exist with
        their full size, so that they can be counted.
        """
        heads = self.contents.heads
        betons = [remote for remote in heads if remote.name.endswith(".beton")]
        self._fetch(
            self._find_pieces(
                (remote, 0, HEADER.itemsize if remote in betons else remote.size)
                for remote in heads
            )
        )
        self._fetch(
            self._find_pieces(
                (remote, *part)
                for remote in betons
                for part in _iterate_metadata_ranges(self.path / remote.name)
            )
        )
        self._fetch(range(min(len(self._pieces), 64)), stopped=stopped)

    def complete(self, progress: Progress, stopped: IsStopped) -> bool:
        """Fetch all missing pieces, check the copy and rename it; False if stopped.

        Raises NotReadyError if a file cannot be fetched or written, or does not match its digest.
        """
        if not self._fetch(range(len(self._pieces)), progress, stopped):
            return False
        with self._lock(lambda: stopped() or self.final.is_dir()) as has_lock:
            if has_lock and not self.final.is_dir():
                if not self._check(progress, stopped):
                    return False
                os.rename(self._part, self.final)
                self._journal.unlink()
        return self.final.is_dir()

    def _find_pieces(self, parts: Iterator[tuple[RemoteFile, int, int]]) -> list[int]:
        missing = list(parts)
        return [
            number
            for number, piece in enumerate(self._pieces)
            if any(
                piece.file == remote and piece.start < end and start < piece.end
                for remote, start, end in missing
            )
        ]

    def _fetch(
        self,
        parts: Sequence[int],
        progress: Progress = do_nothing,
        stopped: IsStopped = lambda: False,
    ) -> bool:
        """Fetch pieces by number, or wait for another process to fetch them; False if stopped."""

        def is_done() -> bool:
            done = self._read_journal()
            self._show(progress, self.fetched_bytes)
            return self.final.is_dir() or all(number in done for number in parts)

        with self._lock(lambda: stopped() or is_done()) as has_lock:
            if has_lock and not is_done():
                self._create_files()
                self._fetch_now(parts, progress, stopped)
        return is_done()

    def _fetch_now(self, parts: Sequence[int], progress: Progress, stopped: IsStopped) -> None:
        """Fetch pieces in parallel. Raises the first error; keeps fetched pieces."""
        done = self._read_journal()
        fetched = self.fetched_bytes
        ahead = (number for number in parts if number not in done)
        with (
            open(self._journal, "ab", buffering=0) as journal,
            ThreadPoolExecutor(PARALLEL_REQUESTS) as pool,
        ):
            end = journal.seek(0, os.SEEK_END)  # a kill may have truncated the last number
            journal.truncate(end - (end - len(self._key)) % 4)
            running: dict[Future, int] = {}
            try:
                while not stopped():
                    for number in islice(ahead, 2 * PARALLEL_REQUESTS - len(running)):
                        running[pool.submit(self._fetch_piece, self._pieces[number])] = number
                    if not running:
                        break
                    for future in wait(running, 0.5, FIRST_COMPLETED).done:
                        future.result()
                        number = running.pop(future)
                        journal.write(np.uint32(number).tobytes())
                        fetched += self._pieces[number].size
                    self._show(progress, fetched)
            finally:
                pool.shutdown(cancel_futures=True)
                for future, number in running.items():
                    if not future.cancelled() and future.exception() is None:
                        journal.write(np.uint32(number).tobytes())

    def _fetch_piece(self, piece: Piece) -> None:
        """Fetch one piece and write it to disk, before the journal lists it."""
        content = self._store.read(*piece)
        with (
            self._convert_write_errors(),
            open(self._part / piece.file.name, "r+b", buffering=0) as file,
        ):
            os.pwrite(file.fileno(), content, piece.start)
            os.fdatasync(file.fileno())

    def _create_files(self) -> None:
        """Create the files at full size without content, unless they exist."""
        if self._read_journal_key() == self._key:
            return
        with self._convert_write_errors():
            for path in self._home.iterdir():  # copies of an earlier version
                if path.suffix == PART:
                    shutil.rmtree(path)
                elif path.suffix == _JOURNAL:
                    path.unlink()
            for remote in self.contents.files:
                path = self._part / remote.name
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "xb") as file:
                    file.truncate(remote.size)
            self._journal.write_bytes(self._key)

    def _check(self, progress: Progress, stopped: IsStopped) -> bool:
        """Compare files with their digests, and large files with the store; False if stopped."""
        for remote in self.contents.files:
            expected = self.contents.sums.get(remote.name, remote.md5)
            kind = "sha256" if remote.name in self.contents.sums else "md5"
            if not expected:
                continue
            digest = hashlib.new(kind)
            with open(self._part / remote.name, "rb") as file:
                while piece := file.read(PIECE_BYTES):
                    digest.update(piece)
                    self._show(progress, self.contents.size)
                    if stopped():
                        return False
            if (actual := digest.hexdigest()) != expected:
                done = [n for n in sorted(self._read_journal()) if self._pieces[n].file != remote]
                self._journal.write_bytes(self._key + np.array(done, np.uint32).tobytes())
                clause = f"has {kind.upper()} {actual} instead of {expected}"
                fix = Hint("run the same command again; only this file is fetched again")
                raise self._store.make_error(remote.name, clause, fix)
        for remote in self.contents.files:
            if remote.size > PIECE_BYTES and self._store.describe(remote.name) != remote:
                raise self._store.make_changed_error(remote)
        return True

    def _show(self, progress: Progress, fetched: int) -> None:
        progress(fetched // 10**6, -(-self.contents.size // 10**6))

    def _read_journal(self) -> set[int]:
        if self.final.is_dir():
            return {*range(len(self._pieces))}
        if self._read_journal_key() != self._key:
            return set()
        listed = self._journal.read_bytes()[len(self._key) :]
        numbers = np.frombuffer(listed[: len(listed) // 4 * 4], np.uint32)
        return {*numbers.tolist()} & {*range(len(self._pieces))}

    def _read_journal_key(self) -> bytes:
        try:
            with open(self._journal, "rb") as file:
                return file.read(len(self._key))
        except FileNotFoundError:
            return b""

    @contextmanager
    def _lock(self, is_over: IsStopped) -> Iterator[bool]:
        """Hold the lock of the copies of this URL; yield False if `is_over` first."""
        disk.make_folder(self._home)
        with open(self._home / "lock", "a") as file:
            while not is_over():
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(0.5)
                else:
                    yield True
                    return
            yield False

    @contextmanager
    def _convert_write_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            clause = f"cannot be written to: {error.strerror}"
            fix = Value("/another/folder")
            raise NotReadyError.of("data.cache", str(self._home), clause, fix) from None


def _iterate_metadata_ranges(beton: Path) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of a .beton file that are not images, from its header."""
    with open(beton, "rb") as file:
        header = file.read(HEADER.itemsize)
        size = os.fstat(file.fileno()).st_size
    if len(header) == HEADER.itemsize:
        row = np.frombuffer(header, HEADER)[0]
        if row["version"] == VERSION:
            count = int(row["num_samples"])
            yield 0, METADATA_START + count * SAMPLE.itemsize
            yield size - count * ALLOCATION.itemsize, size
