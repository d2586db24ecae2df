"""Run a loader in its own process and measure its cost."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from loader_list import BATCH, LOADERS, LoaderInput

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def serve(name: str, inputs: LoaderInput) -> None:
    """Run one loader's process: for each line of input, read that many batches and reply."""
    batches = LOADERS[name](inputs)
    for line in sys.stdin:
        for _ in range(int(line)):
            next(batches)
        print("read", flush=True)


class LoaderProcess:
    """A loader in its own process."""

    def __init__(self, name: str, inputs: LoaderInput):
        self._process = subprocess.Popen(
            [sys.executable, __file__, name, *map(str, inputs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        # this starts workers, compiles, or fills the page cache or the memory for pixels
        self.measure_rate(5 + sum(1 for _ in (inputs.root / "train").glob("*/*")) // BATCH)

    def measure_rate(self, batches: int) -> float:
        """Read some batches; return images per CPU-second. Exits if the loader has failed."""
        before = self._wait_until_idle()
        with suppress(BrokenPipeError):  # the process may have ended
            print(batches, file=self._process.stdin, flush=True)
        if not self._process.stdout.readline():
            raise SystemExit("a loader has failed: see its message above")
        return batches * BATCH / (self._wait_until_idle() - before)

    def close(self) -> None:
        """End the process and its workers."""
        self._process.kill()
        self._process.wait()

    def _wait_until_idle(self) -> float:
        """Wait for a second without activity; return the CPU seconds used so far."""
        seconds = read_cpu_seconds(self._process.pid)
        idle_checks = 0
        while idle_checks < 4:
            time.sleep(0.25)
            now = read_cpu_seconds(self._process.pid)
            seconds, idle_checks = now, idle_checks + 1 if now - seconds < 0.02 else 0
        return seconds


def read_cpu_seconds(pid: int | str) -> float:
    """Return the CPU time of a process and all its descendants, including reaped ones."""
    folder = Path("/proc", str(pid))
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        children = " ".join(path.read_text() for path in folder.glob("task/*/children")).split()
    except OSError:  # it has just ended
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS_PER_SECOND + sum(map(read_cpu_seconds, children))


if __name__ == "__main__":
    loader, root, pixels = sys.argv[1:]
    serve(loader, LoaderInput(Path(root), int(pixels)))
