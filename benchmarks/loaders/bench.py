"""Run a loader in its own process and measure its cost."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from cases import BATCH, LOADERS, Setting

TICKS = os.sysconf("SC_CLK_TCK")


def serve(name: str, setting: Setting) -> None:
    """Run one loader's process: for each line of input, read that many batches and reply."""
    batches = LOADERS[name](setting)
    for line in sys.stdin:
        for _ in range(int(line)):
            next(batches)
        print("read", flush=True)


class Bench:
    """A loader in its own process."""

    def __init__(self, name: str, setting: Setting):
        main = str(Path(__file__).with_name("__main__.py"))
        command = [
            sys.executable,
            main,
            str(setting.root),
            "--serve",
            name,
            "--sizes",
            str(setting.pixels),
        ]
        command += ["--workers", str(setting.workers)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        started = time.perf_counter()
        self._read(1)
        self.start_up = time.perf_counter() - started  # seconds, imports included
        self.rate(4)  # start workers, compile, fill the page cache

    def wall_rate(self, batches: int) -> float:
        """Read some batches; return images per second of wall time."""
        started = time.perf_counter()
        self._read(batches)
        return batches * BATCH / (time.perf_counter() - started)

    def rate(self, batches: int) -> float:
        """Read some batches; return images per CPU-second, with full queues before and after."""
        before = self._idle_seconds()
        self._read(batches)
        return batches * BATCH / (self._idle_seconds() - before)

    def close(self) -> None:
        """End the process and its workers."""
        self._process.kill()
        self._process.wait()

    def _read(self, batches: int) -> None:
        self._process.stdin.write(f"{batches}\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise SystemExit("a loader has failed: see its message above")

    def _idle_seconds(self) -> float:
        """Wait until nothing has run for a second; return the CPU seconds used so far."""
        seconds, quiet = cpu_seconds(self._process.pid), 0
        while quiet < 4:
            time.sleep(0.25)
            now = cpu_seconds(self._process.pid)
            seconds, quiet = now, quiet + 1 if now - seconds < 0.02 else 0
        return seconds


def cpu_seconds(root: int) -> float:
    """Return the CPU time of a process and all its descendants, ended and reaped ones included."""
    return sum(processes(root).values())


def processes(root: int) -> dict[int, float]:
    """Return the CPU seconds of a process and each of its descendants, by their ids."""
    parents, seconds = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(entry.name)
            parents[pid], seconds[pid] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS
    return {pid: spent for pid, spent in seconds.items() if root in lineage(pid, parents)}


def lineage(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """Yield a process and its ancestors."""
    while pid in parents:
        yield pid
        pid = parents[pid]
