"""The watchdog: where every rank is, and its stacks if it does not get on."""

import faulthandler
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

#: Seconds without a beat after which a rank's stacks go to its log: once a stall; nothing is killed.
STALLED = 300.0

_RECORD = struct.Struct("=qdii16s64s")      # step, time, pid, parent, phase, host: one write, so never half written


class Beat(NamedTuple):
    """The last sign of life of a rank."""

    rank: int
    step: int             # steps completed
    time: float           # seconds since the epoch
    pid: int
    parent: int           # the process that started it: torchrun, or the launcher
    phase: str            # what it was about to do: "step", "evaluate", ...
    host: str


class Watchdog:
    """This rank's heartbeat, kept in RUN/heartbeat/rank3. A beat costs microseconds: one write to an open file."""

    def __init__(self, folder: Path, rank: int, stalled: float = STALLED):
        """Start watching: crashes, SIGUSR2 and stalls put the stacks of all threads into stderr, which is the rank's log."""
        self.step = 0
        self._stalled = stalled
        self._armed = -stalled
        self._parent = os.getppid()
        self._host = socket.gethostname().encode()[:64]
        path = folder / "heartbeat" / f"rank{rank}"
        path.parent.mkdir(exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        faulthandler.enable(sys.stderr)
        faulthandler.register(signal.SIGUSR2, sys.stderr)
        self.beat(0, "start")

    def beat(self, step: int, phase: str = "step") -> None:
        """Say that `step` steps are done, and what comes next."""
        self.step = step
        os.pwrite(self._file, _RECORD.pack(step, time.time(), os.getpid(), self._parent, phase.encode()[:16], self._host), 0)
        now = time.monotonic()
        if now - self._armed > self._stalled / 100:         # arming starts a thread: not at every step
            faulthandler.dump_traceback_later(self._stalled, file=sys.stderr)
            self._armed = now

    def close(self) -> None:
        """Stop watching; the last beat stays to be read."""
        faulthandler.cancel_dump_traceback_later()
        os.close(self._file)


def beats(folder: Path) -> list[Beat]:
    """Return the last beat of every rank of a run, by rank."""
    found = []
    for path in (folder / "heartbeat").glob("rank*"):
        try:
            step, seconds, pid, parent, phase, host = _RECORD.unpack(path.read_bytes())
            rank = int(path.name.removeprefix("rank"))
        except (OSError, struct.error, ValueError):
            continue                                        # being created
        found.append(Beat(rank, step, seconds, pid, parent, *(text.rstrip(b"\0").decode(errors="replace") for text in (phase, host))))
    return sorted(found)


def stall(ranks: Iterable[Beat], now: float, stalled: float = STALLED) -> str:
    """Return a sentence on a run in which no step ended for `stalled` seconds, naming who lags; empty if all is well."""
    ranks = list(ranks)
    if not ranks or now - max(beat.time for beat in ranks) < stalled:
        return ""
    last = min(ranks, key=lambda beat: (beat.step, beat.time))
    where = f"rank {last.rank} is behind: {last.step:,} steps done, then '{last.phase}'" if len(ranks) > 1 else f"it is in '{last.phase}'"
    return f"nothing has moved for {(now - max(beat.time for beat in ranks)) / 60:.0f} minutes; {where} (process {last.pid} on {last.host})"
