"""Several runs, one after the other or a few at once, each by a command of its own."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.errors import ExitCode
from resnet_recipes.process.rank_process import die_with_parent

#: Exit codes after which the sweep stops too: somebody wants the machine.
STOPPED = (ExitCode.PREEMPTED, ExitCode.CANCELLED)

Slot = Mapping[str, str]        # what a run's environment says of its share of the machine


class _Child(NamedTuple):
    """A run that is being trained."""

    head: str                   # "[2 of 6] mild-seed2-0a1b2c3d"
    process: subprocess.Popen[bytes]
    slot: Slot


class Sweep:
    """The runs of one sweep in `root`, by name; each is trained as `resnet-train WORDS run=NAME --resume auto`."""

    def __init__(self, root: Path, runs: Mapping[str, Sequence[str]], say: Callable[[str], None], slots: Sequence[Slot]):
        """Prepare to train as many runs at once as there are `slots`."""
        self.root, self.runs, self.say = root, runs, say
        self._free = deque(slots)
        self._logs = len(slots) > 1             # the output of several runs at once is not for one terminal
        self._active: list[_Child] = []
        self._failed: dict[str, int] = {}       # heads of runs with their exit codes
        self._stop: int = ExitCode.DONE         # the exit code of the sweep, once somebody wants the machine

    def train(self) -> int:
        """Train every run that is not finished; return the exit code of the sweep.

        A run that fails does not stop the others. A signal stops all, with a checkpoint each: the same command
        continues the sweep, since each run resumes where it was.
        """
        waiting = deque(enumerate(self.runs.items(), 1))
        with self._receiving_signals():
            while self._active or (waiting and not self._stop):
                while waiting and self._free and not self._stop:
                    number, (name, words) = waiting.popleft()
                    self._start(f"[{number} of {len(self.runs)}] {name}", name, words)
                self._reap()
        if self._stop:
            self.say("stopped; the same command continues the sweep")
            return self._stop
        self.say(f"{len(self.runs) - len(self._failed)} of {len(self.runs)} runs are finished in {self.root}")
        for head, code in self._failed.items():
            self.say(f"  failed with exit code {code}: {head}")
        return ExitCode.FAILED if self._failed else ExitCode.DONE

    def _start(self, head: str, name: str, words: Sequence[str]) -> None:
        if (self.root / name / "summary.json").exists():
            self.say(f"{head}: already finished")
            return
        slot, log = self._free.popleft(), self.root / f"{name}.log"
        self.say(f"{head}: {' '.join(words)}" + (f"  > {log}" if self._logs else ""))
        command = [sys.executable, "-m", "resnet_recipes", *words, f"run={name}", "--resume", "auto"]
        output = None
        if self._logs:
            self.root.mkdir(parents=True, exist_ok=True)
            output = log.open("ab")
        process = subprocess.Popen(command, env=os.environ | slot, stdout=output, stderr=output,
                                   preexec_fn=die_with_parent)
        if output:
            output.close()
        self._active.append(_Child(head, process, slot))

    def _reap(self) -> None:
        """Wait a little, and take note of the runs that have ended."""
        time.sleep(0.1)
        for child in [child for child in self._active if child.process.poll() is not None]:
            self._active.remove(child)
            self._free.append(child.slot)
            code = child.process.returncode
            code = code if code >= 0 else 128 - code
            if code in STOPPED:
                self._stop = self._stop or code
                self.say(f"{child.head}: stopped")
            elif code and not self._stop:
                self._failed[child.head] = code
                self.say(f"{child.head}: failed with exit code {code}")

    @contextmanager
    def _receiving_signals(self) -> Iterator[None]:
        """Pass on what this process is told; Ctrl-C reaches the runs from the terminal."""
        def stop(number: int, _: object) -> None:
            self._stop = ExitCode.CANCELLED if number == signal.SIGINT else ExitCode.PREEMPTED
            if number != signal.SIGINT:
                for child in self._active:
                    child.process.send_signal(number)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def slots(parallel: int, gpus: int, cores: int) -> list[Slot]:
    """Return one GPU for each of `parallel` runs, or on a CPU an even share of the cores; all of the machine for one."""
    if parallel == 1:
        return [{}]
    if gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        names = visible if visible != [""] else [str(number) for number in range(gpus)]
        return [{"CUDA_VISIBLE_DEVICES": name} for name in names[:parallel]]
    return [{"OMP_NUM_THREADS": str(max(1, cores // parallel))}] * parallel
