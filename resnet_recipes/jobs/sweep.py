"""The runs of a sweep, one or several at a time, each started by its own command."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.errors import REJECTED_CODES, STOPPED_CODES, ExitCode
from resnet_recipes.base.processes import die_with_parent
from resnet_recipes.base.text import Say, format_minutes
from resnet_recipes.jobs.ranks.signals import handle_signals
from resnet_recipes.run_folder import CHECKPOINT, CHECKPOINTS, LOGS, SUMMARY
from resnet_recipes.run_folder.lock import is_running
from resnet_recipes.run_folder.runs import read_run

#: A log is appended to, but never through a link, which could point anywhere.
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK

Slot = Mapping[str, str]  # environment variables that assign a run its part of the machine


class _Child(NamedTuple):
    name: str
    process: subprocess.Popen[bytes]
    slot: Slot


class Sweep:
    """The runs of `root` by name.

    Each is `resnet-train ARGUMENTS run=NAME --resume auto`; one per slot runs at a time.
    Several sweeps may share a root: the first sweep trains a run, and the others wait for it.
    """

    def __init__(
        self,
        root: Path,
        runs: Mapping[str, Sequence[str]],
        say: Say,
        slots: Sequence[Slot],
        parents: Mapping[str, tuple[str, int]] | None = None,
    ):
        """Prepare to train `runs`, the arguments of each run by name, in `slots`.

        `parents` maps a run to the run and step that it continues: the run starts once the other
        has saved that step or has ended.
        """
        self.root = root
        self.runs = runs
        self.say = say
        self._parents = parents or {}
        self._free = deque(slots)
        # the output of simultaneous runs would mix on one terminal
        self._has_logs = len(slots) > 1
        self._waiting = deque(runs)
        self._active: list[_Child] = []
        self._elsewhere: set[str] = set()  # names of runs that another command trains
        self._retried_names: set[str] = set()  # names of runs that another sweep started first
        self._failures: dict[str, int] = {}  # exit codes by name
        self._signals: deque[int] = deque()  # signals that were not forwarded yet
        self._stop: int = ExitCode.DONE  # exit code of the sweep after a stop

    def train(self) -> int:
        """Train every run that is not finished; return the exit code of the sweep.

        A failed run does not stop the others. A run that was stopped from outside ends the sweep.
        The same command continues it, since each run resumes.
        """
        with handle_signals(self._signals.append):
            while self._active or (self._waiting and not self._stop):
                while self._free and not self._stop and (name := self._take_next()):
                    self._start(name)
                time.sleep(0.1)
                self._forward_signals()
                self._collect_ended()
        if self._stop:
            self.say("the sweep was stopped")
            return self._stop
        done = len(self.runs) - len(self._failures)
        self.say(f"finished runs: {done} of {len(self.runs)}, in {self.root}")
        for name, code in self._failures.items():
            self.say(f"  failed with exit code {code}: {name}")
        return ExitCode.FAILED if self._failures else ExitCode.DONE

    def _take_next(self) -> str:
        """Remove and return the first waiting run that can start now; "" if none can."""
        for name in self._waiting:
            if is_running(self.root / name):
                if name not in self._elsewhere:
                    self._elsewhere.add(name)
                    self.say(f"{self._format_head(name)}: another command is training it")
            elif not self._awaits_parent(name):
                self._waiting.remove(name)
                return name
        return ""

    def _awaits_parent(self, name: str) -> bool:
        """Return whether the checkpoint that a run continues is not saved yet."""
        other, _ = self._parents.get(name, ("", 0))
        is_coming = other in (*self._waiting, *(child.name for child in self._active))
        return is_coming and not self._has_parent_checkpoint(name)

    def _has_parent_checkpoint(self, name: str) -> bool:
        """Return whether the checkpoint that a run continues is complete."""
        other, step = self._parents[name]
        file = self.root / other / CHECKPOINTS / CHECKPOINT.format(step)
        return file.with_suffix(".json").exists()

    def _start(self, name: str) -> None:
        arguments = self.runs[name]
        head = self._format_head(name)
        other, _ = self._parents.get(name, ("", 0))
        if other in self._failures and not self._has_parent_checkpoint(name):
            self._failures[name] = self._failures[other]
            self.say(f"{head}: needs the stable phase of {other}")
            return
        if (self.root / name / SUMMARY).exists():
            self.say(f"{head}: already finished")
            return
        log = self.root / LOGS / f"{name}.log"  # runs/NAME* must not match it
        extends = [f"run.extends={other}"] if other else []
        program = [sys.executable, "-m", "resnet_recipes"]
        command = [*program, *arguments, *extends, f"run={name}"]
        command += ["--resume", "auto", "--no-plan"]
        options = {"env": os.environ | self._free[0], "preexec_fn": die_with_parent}
        if self._has_logs:
            try:
                log.parent.mkdir(parents=True, exist_ok=True)
                output = os.open(log, _APPEND, 0o644)
            except OSError as error:
                self._failures[name] = ExitCode.NOT_READY
                self.say(f"{head}: {log} cannot be written: {error.strerror}")
                return
            self.say(f"{head} > {log}")
            with os.fdopen(output, "ab") as file:
                process = subprocess.Popen(command, stdout=file, stderr=file, **options)
        else:
            self.say(head)
            # the line at its end replaces the summary
            output = None if "--verbose" in arguments else subprocess.DEVNULL
            process = subprocess.Popen(command, stdout=output, **options)
        self._active.append(_Child(name, process, self._free.popleft()))

    def _forward_signals(self) -> None:
        """Forward signals to the runs; Ctrl-C reaches them from the terminal."""
        while self._signals:
            number = self._signals.popleft()
            self._stop = ExitCode.CANCELLED if number == signal.SIGINT else ExitCode.PREEMPTED
            for child in self._active if number != signal.SIGINT else ():
                child.process.send_signal(number)

    def _collect_ended(self) -> None:
        for child in [child for child in self._active if child.process.poll() is not None]:
            self._active.remove(child)
            self._free.append(child.slot)
            code = child.process.returncode
            code = code if code >= 0 else 128 - code
            head = self._format_head(child.name)
            if code in STOPPED_CODES:  # also stop the sweep: the machine is needed
                self._stop = self._stop or code
                self.say(f"{head}: stopped")
            elif code and self._was_started_elsewhere(child.name, code):
                self._retried_names.add(child.name)
                self._waiting.append(child.name)
            elif code and not self._stop:
                self._failures[child.name] = code
                self.say(f"{head}: failed with exit code {code}")
            elif not code and (run := read_run(self.root / child.name)):
                top1 = "" if run.top1_percent is None else f"top-1 {run.top1_percent:.2f}% "
                self.say(f"{head}: {top1}in {format_minutes(run.minutes or 0.0)} of training")

    def _was_started_elsewhere(self, name: str, code: int) -> bool:
        """Return whether another sweep started the run first; it may still be starting."""
        is_first = name not in self._retried_names and code in REJECTED_CODES
        return is_running(self.root / name) or (is_first and (self.root / name).exists())

    def _format_head(self, name: str) -> str:
        return f"[{list(self.runs).index(name) + 1} of {len(self.runs)}] {name}"


def make_slots(parallel: int, gpus: int, cores: int) -> list[Slot]:
    """Return a part of the machine for each of `parallel` runs.

    Each part has one GPU or, on a machine without GPUs, an equal number of cores.
    """
    if parallel == 1:
        return [{}]
    if gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        names = visible if visible != [""] else [str(number) for number in range(gpus)]
        return [{"CUDA_VISIBLE_DEVICES": name} for name in names[:parallel]]
    return [{"OMP_NUM_THREADS": str(max(1, cores // parallel))}] * parallel
