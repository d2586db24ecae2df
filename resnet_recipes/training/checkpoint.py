"""Write, verify and read the checkpoints of a run.

Writes are atomic and run in the background. A checkpoint is verified before it is read.
"""

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO, FileIO
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import Hint, NotReadyError, Statement, TrainingError
from resnet_recipes.base.reading import open_regular, parse_json
from resnet_recipes.base.text import Say
from resnet_recipes.network import archive
from resnet_recipes.network.archive import ArchiveError, State
from resnet_recipes.planning.disk import find_space_problem
from resnet_recipes.run_folder import CHECKPOINT

#: Version of the checkpoint format; a run rejects newer versions.
FORMAT = 1

_MANIFEST = re.compile(r"step-(\d{8,18})\.json")
_MAX_MANIFEST_BYTES = 4096
_MAX_FAILURES = 3  # consecutive failed saves that end a run

#: Permanent errors: the file is missing or too large, or a folder, pipe or link.
_PERMANENT_ERRNOS = (
    errno.ENOENT,
    errno.EINVAL,
    errno.EFBIG,
    errno.EISDIR,
    errno.ENXIO,
    errno.ELOOP,
)


class SavedState(NamedTuple):
    """The contents of a checkpoint."""

    step: int  # completed steps
    state: State


class Checkpoints:
    """The checkpoints in one folder. Rank 0 writes them; any process may read them.

    A checkpoint is `step-00001234.pt` with its manifest `step-00001234.json` (SHA-256, bytes, step,
    format). The manifest is written last. A checkpoint without a manifest is incomplete and is
    ignored.
    """

    def __init__(self, folder: Path, keep: int = 1, stable_step: int = 0, note: Say = print):
        """Open the checkpoints in `folder`; pass warnings to `note`.

        Keeps the newest `keep` checkpoints and the checkpoint of step `stable_step`.
        """
        self.folder = folder
        self.keep = keep
        self.stable_step = stable_step
        self._note = note
        self._newest: int | None = None  # newest step that this process has written or verified
        self._bad: set[int] = set()  # steps that load_newest() found damaged
        self._staging: dict[str, Tensor] = {}  # host buffers, reused by every save
        self._failures = 0  # failed saves in a row
        self._reason = ""  # reason of the last failure
        self._pending: Future[None] | None = None
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")

    def open_for_writing(self, needed: int = 0) -> None:
        """Create the folder and delete partial files left by killed processes.

        `needed` is the disk space in bytes that the run needs, including existing checkpoints.
        Raises NotReadyError if the folder is not writable or the disk space is not available.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic.delete_parts(self.folder)
            atomic.write_text(self.folder / "probe", "")
            (self.folder / "probe").unlink()
        except OSError as error:
            clause = Statement(f"checkpoints cannot be written here ({error.strerror})")
            raise NotReadyError.at(self.folder, clause, "run.root=/another/folder") from None
        NotReadyError.raise_if_any([find_space_problem(self.folder, needed)])

    def save(self, step: int, state: State, wait: bool = False, is_last: bool = False) -> None:
        """Save `state` as the checkpoint of `step`.

        Returns when the tensors are copied to the host or, with `wait`, when the file is on disk.

        A failed write is only a warning, since losing the run is worse than losing a checkpoint.
        Raises TrainingError after three failures in a row, unless this save `is_last`. With `wait`,
        one failure is enough.
        """
        self._finish(training_continues=not is_last)
        copy = self._copy_to_host(state, "")
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
        self._pending = self._writer.submit(self._write, step, copy)
        if wait:
            self.wait()

    def wait(self, is_last: bool = False) -> None:
        """Wait until no write is in progress. Raises TrainingError if the last save failed.

        With `is_last` it does not raise, because only the run's weights are needed then.
        """
        self._finish(training_continues=not is_last)
        if self._failures and not is_last:
            raise TrainingError(
                f"the last checkpoint could not be written to {self.folder} ({self._reason})",
                Hint(self._describe_newest()),
            )

    def load_newest(self, last_step: float = inf) -> SavedState | None:
        """Return the newest intact checkpoint up to `last_step`, or None.

        The state is memory-mapped: copy the tensors that you keep. Checkpoints skipped before it
        are noted. Raises TrainingError if there are checkpoints but none can be read, or if a newer
        version wrote one.
        """
        self._finish()
        skipped: list[str] = []
        steps = sorted((step for step in self.iterate_steps() if step <= last_step), reverse=True)
        for step in steps:
            try:
                state = self._read_verified(step)
            except ArchiveError as error:
                self._bad.add(step)
                reason = str(error)
            except OSError as error:  # the error may be temporary, so the file is kept
                reason = f"it cannot be read ({error.strerror})"
            else:
                self._newest = step
                for text in skipped:
                    self._note(text)
                return SavedState(step, state)
            skipped.append(f"the checkpoint of step {step:,} was skipped: {reason}")
        if steps:
            summary = f"no checkpoint in {self.folder} can be used"
            raise TrainingError(summary, tuple(map(Hint, skipped)))
        return None

    def iterate_steps(self) -> Iterator[int]:
        """Yield the steps of all checkpoints that have a manifest, intact or not."""
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if match := _MANIFEST.fullmatch(path.name):
                    yield int(match[1])

    def _path(self, step: int) -> Path:
        return self.folder / CHECKPOINT.format(step)

    def _read_verified(self, step: int) -> State:
        """Return the state of one checkpoint that is intact and not newer than this version."""
        path = self._path(step)
        with _open_file(path.with_suffix(".json"), _MAX_MANIFEST_BYTES) as file:
            text = file.readall()
        try:
            manifest = parse_json(text.decode())
            expected = tuple(manifest[key] for key in ("format", "step", "bytes", "sha256"))
        except (ValueError, KeyError, TypeError):
            raise ArchiveError("its manifest cannot be read") from None
        if isinstance(expected[0], int) and expected[0] > FORMAT:
            raise TrainingError(
                f"{path} has format {expected[0]}, but this version reads format {FORMAT}",
                Hint("resume with the newer version"),
            )
        with _open_file(path, archive.MAX_ARCHIVE_BYTES) as file:
            actual = (
                FORMAT,
                step,
                os.fstat(file.fileno()).st_size,
                hashlib.file_digest(file, "sha256").hexdigest(),
            )
        if actual != expected:
            raise ArchiveError("it is damaged: its size, step or SHA-256 is wrong")
        return archive.read(path, check_crc=False)

    def _copy_to_host(self, value: Any, key: str) -> Any:
        """Return `value` with every tensor copied to reused host memory."""
        if isinstance(value, Tensor):
            buffer = self._staging.get(key)
            if buffer is None or (buffer.shape, buffer.dtype, buffer.stride()) != (
                value.shape,
                value.dtype,
                value.stride(),
            ):
                buffer = torch.empty_like(
                    value, device="cpu", pin_memory=value.is_cuda, requires_grad=False
                )
                self._staging[key] = buffer
            return buffer.copy_(value.detach(), non_blocking=True)
        if isinstance(value, dict):
            return {name: self._copy_to_host(item, f"{key}/{name}") for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._copy_to_host(item, f"{key}/{i}") for i, item in enumerate(value)]
        if value is not None and type(value) not in (str, int, float, bool):
            raise TypeError(
                f"{key} is a {type(value).__name__}: it could be written but never read back"
            )
        return value

    def _write(self, step: int, state: State) -> None:
        """Write one checkpoint, then delete outdated checkpoints. Runs in the writer thread."""
        path = self._path(step)
        self.folder.mkdir(parents=True, exist_ok=True)
        memory = BytesIO()  # torch.save to a file hides the cause of a failed write
        torch.save(state, memory)
        content = memory.getbuffer()
        with atomic.replace_file(path) as file:
            file.write(content)
            # manifest of a damaged checkpoint of the same step
            path.with_suffix(".json").unlink(missing_ok=True)
        manifest = {
            "format": FORMAT,
            "step": step,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        atomic.write_text(path.with_suffix(".json"), json.dumps(manifest))
        atomic.sync_folder(self.folder)
        self._newest = step
        self._bad.discard(step)
        self._delete_old(step)

    def _delete_old(self, newest: int) -> None:
        """Delete damaged checkpoints and old ones, except the newest `keep` and `stable_step`.

        A good checkpoint is on disk at this point.
        """
        older = sorted(
            (step for step in self.iterate_steps() if step <= newest and step not in self._bad),
            reverse=True,
        )
        for step in {*older[self.keep :]} - {self.stable_step} | self._bad:
            self._path(step).with_suffix(".json").unlink(missing_ok=True)
            self._path(step).unlink(missing_ok=True)
        self._bad.clear()

    def _finish(self, training_continues: bool = True) -> None:
        """Wait for the background write, and count it if it failed."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            pending.result()
            self._failures = 0
        except OSError as error:
            self._failures += 1
            self._reason = os.strerror(error.errno) if error.errno else str(error)
            reason = f"a checkpoint could not be written ({self._reason})"
            if training_continues and self._failures >= _MAX_FAILURES:
                statement = f"{reason}, {_MAX_FAILURES} times in a row: {self.folder}"
                raise TrainingError(statement, Hint(self._describe_newest())) from None
            self._note(
                f"{reason}; {'training continues; ' * training_continues}{self._describe_newest()}"
            )

    def _describe_newest(self) -> str:
        if self._newest is None:
            return "there is no checkpoint yet"
        return f"the newest checkpoint is from step {self._newest:,}"


def _open_file(path: Path, max_bytes: int) -> FileIO:
    """Open a regular file of at most `max_bytes` bytes.

    Raises ArchiveError for permanent errors and OSError for others.
    """
    try:
        return open_regular(path, max_bytes)
    except OSError as error:
        if error.errno in _PERMANENT_ERRNOS:
            raise ArchiveError(f"it cannot be read ({error.strerror})") from None
        raise
