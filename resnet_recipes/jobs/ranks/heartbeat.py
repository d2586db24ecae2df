"""Watch the ranks: each reports its step and writes its stacks if it is stuck."""

import faulthandler
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.run_folder import ENDINGS, HEARTBEATS
from resnet_recipes.run_folder.ending import Ending, read_ending
from resnet_recipes.run_folder.lock import HeldFolder

#: Seconds without a beat before a rank writes its stacks to its log, once; nothing is killed.
STALL_SECONDS = 300.0

# step, count, pid, parent, phase, host
_RECORD = struct.Struct("=qqii16s64s")


class Beat(NamedTuple):
    """The last heartbeat of a rank."""

    rank: int
    step: int  # completed steps
    beats: int  # of this process so far, so that all heartbeats differ
    pid: int
    parent: int  # the process that started it: torchrun, or the launcher
    phase: str  # the phase that started: "train", "evaluate", ...
    host: str


class HeartbeatWriter:
    """This rank's heartbeat, in RUN/heartbeat/rank3. A beat costs microseconds."""

    def __init__(self, folder: HeldFolder, rank: int, stall_seconds: float = STALL_SECONDS):
        """Start watching for crashes, SIGUSR2 and stalls.

        Each of them writes the stacks of all threads to stderr, the log of the rank.
        """
        self.step = 0
        self._folder = folder
        self._count = 0
        self._stall_seconds = stall_seconds
        self._armed_at = -stall_seconds
        self._has_reported_failure = False  # a beat could not be written, and this was reported
        self._parent = os.getppid()
        self._host = socket.gethostname().encode()[:64]
        path = folder.path / HEARTBEATS / f"rank{rank}"
        path.parent.mkdir(exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        faulthandler.enable(sys.stderr)
        faulthandler.register(signal.SIGUSR2, sys.stderr)
        self.beat(0, "start")

    def beat(self, step: int, phase: str) -> None:
        """Record that `step` steps are done, and the next phase.

        Raises TrainingError if the folder was replaced.
        """
        self._folder.confirm()
        self.step = step
        self._count += 1
        record = _RECORD.pack(
            step, self._count, os.getpid(), self._parent, phase.encode()[:16], self._host
        )
        try:
            os.pwrite(self._file, record, 0)
        except OSError as error:  # a failed beat must not stop the run
            if not self._has_reported_failure:
                sys.stderr.write(f"the heartbeat cannot be written: {error.strerror}\n")
            self._has_reported_failure = True
        now = time.monotonic()
        # arming starts a thread, so this does not happen at every step
        if now - self._armed_at > self._stall_seconds / 100:
            faulthandler.dump_traceback_later(self._stall_seconds, file=sys.stderr)
            self._armed_at = now


def read_beats(folder: Path) -> list[Beat]:
    """Return the last beat of each rank of a run that has one, by rank."""
    beats = []
    for path in _list_files(folder / HEARTBEATS):
        try:
            *numbers, phase, host = _RECORD.unpack(path.read_bytes())
            rank = int(path.name.removeprefix("rank"))
        except (OSError, struct.error, ValueError):
            continue  # it is being created
        texts = (text.rstrip(b"\0").decode(errors="replace") for text in (phase, host))
        beats.append(Beat(rank, *numbers, *texts))
    return sorted(beats)


class RankMonitor:
    """Reads the heartbeats and endings that ranks have written since it was created.

    It compares their contents and measures time itself, because clocks differ between machines and
    may be set during a run.
    """

    def __init__(self, folder: Path):
        """Record the files of earlier sessions in the folder."""
        self._folder = folder
        self._old_beats = set(read_beats(folder))
        self._old_endings = set(_read_endings(folder))
        self._last: list[Beat] = []
        self._changed_at = time.monotonic()

    def read_beats(self) -> list[Beat]:
        """Return the last beat of each rank that has a new one, by rank."""
        return [beat for beat in read_beats(self._folder) if beat not in self._old_beats]

    def read_endings(self) -> list[Ending]:
        """Return the endings of the ranks in the last attempt."""
        endings = [
            ending for ending in _read_endings(self._folder) if ending not in self._old_endings
        ]
        last = max((ending.attempt for ending in endings), default=0)
        return [ending for ending in endings if ending.attempt == last]

    def describe_stall(self) -> str:
        """Return a sentence that names the slowest rank, if no rank has made progress for a while.

        The time counts from the last call that read a new heartbeat, so calls must be regular.
        """
        beats = self.read_beats()
        now = time.monotonic()
        if beats != self._last:
            self._last, self._changed_at = beats, now
        if not beats or now - self._changed_at < STALL_SECONDS:
            return ""
        last = min(beats, key=lambda beat: beat.step)
        return (
            f"no progress for {(now - self._changed_at) / 60:.0f} minutes; rank {last.rank} is in "
            f"'{last.phase}' after {last.step:,} steps (process {last.pid} on {last.host})"
        )


def _list_files(folder: Path) -> list[Path]:
    """Return the files of ranks in a folder; empty while the disk cannot list it."""
    try:
        return [path for path in folder.iterdir() if path.name.startswith("rank")]
    except OSError:
        return []


def _read_endings(folder: Path) -> Iterator[Ending]:
    for path in _list_files(folder / ENDINGS):
        if ending := read_ending(path):
            yield ending
