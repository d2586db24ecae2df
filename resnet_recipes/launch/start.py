"""The launcher: start the processes of a run, pass signals on, and report how it ended.

It trains nothing itself.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from resnet_recipes.base.errors import ExitCode
from resnet_recipes.launch.group import GRACE, Group, command, environments
from resnet_recipes.process import ending
from resnet_recipes.process.ending import Ending
from resnet_recipes.process.folder import HeldFolder
from resnet_recipes.process.lock import locked
from resnet_recipes.process.observer import Observer
from resnet_recipes.process.rank_process import die_with_parent
from resnet_recipes.process.signals import handling
from resnet_recipes.report.terminal import SHOW_CURSOR, interjection

#: Seconds that ranks get to stop when there is nothing to save: after one has failed, and before
#: the first step.
AFTERMATH = 5

#: Seconds for which Ctrl-C is taken for an echo of the first signal, from a wrapper or a closing
#: terminal. After that it means: stop now. No other signal does: Slurm sends SIGTERM several times,
#: seconds apart, to a job it requeues.
ECHO = 0.5

#: The line of a traceback that names the error.
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")


def start(folder: Path, group: Group, say: Callable[[str], None]) -> Ending:
    """Train the frozen recipe in `folder` and return how that ended; nothing is left running.

    Raises NotReadyError if the folder is in use, and TrainingError if it was replaced during the
    run.

    `say` shows a line to the user. Call it in the main thread. The ending is also written to
    RUN/exit.json.
    """
    held = HeldFolder(folder)
    with locked(folder):
        launch = Launch(folder, group, say)
        with handling(launch.receive):
            launch.supervise()
        held.confirm()
        result = launch.ending()
    ending.write(folder / "exit.json", result)
    if result.failed or (result.code and not result.step):
        say(result.explained(folder, group.ranks, not group.program))
    return result


@contextmanager
def started(
    files: Mapping[str, str], group: Group, say: Callable[[str], None]
) -> Iterator[tuple[Path, Ending]]:
    """Start a group in a temporary folder with these files.

    Yield the folder, with its results, and how it ended.

    The folder is deleted at the end of the context, unless its logs are needed.
    """
    folder = Path(tempfile.mkdtemp(prefix="resnet-recipes-"))
    for name, text in files.items():
        (folder / name).write_text(text)
    ended = start(folder, group, say)
    yield folder, ended
    if not ended.failed or ended.code in (ExitCode.RECIPE, ExitCode.NOT_READY):
        shutil.rmtree(folder, ignore_errors=True)


class Launch:
    """One run of a group of processes, from the first start to the last exit."""

    def __init__(self, folder: Path, group: Group, say: Callable[[str], None]):
        self.folder, self.group, self.say = folder, group, say
        self._started, self._observer = time.monotonic(), Observer(folder)
        self.log = folder / "logs" / "launcher.log"  # what ranks print before they have their own
        self._received: list[int] = []
        self._heard = 0.0  # when the last of them came
        self._processes: list[subprocess.Popen[bytes]] = []  # by rank
        self._killed_here: set[int] = set()  # pids
        self._kill_at = float("inf")  # a reading of time.monotonic()
        self._stalled = False

    def supervise(self) -> None:
        """Start the processes, restart them after a failure if allowed, and return when all are gone."""
        self.log.parent.mkdir(exist_ok=True)
        # The ranks meet through a file in a private folder: there is no port that others could
        # reach.
        with (
            self.log.open("w") as log,
            tempfile.TemporaryDirectory(prefix="resnet-recipes-") as meeting,
        ):
            for attempt in range(1 + self.group.max_restarts):
                self._start(attempt, f"{meeting}/{attempt}", log)
                while self._alive():
                    self._look_after()
                self._sweep()
                if not self._starts_again(attempt):
                    break
        if sys.stderr.isatty():
            sys.stderr.write(SHOW_CURSOR)  # a killed rank could not do it

    def ending(self) -> Ending:
        """Return how it went, after all processes are gone."""
        ranks, killed = self._observer.endings(), self._killed()
        failure = ending.first_failure(ranks)
        if len(ranks) == self.group.ranks and not (failure or killed or self._received):
            return max(ranks, key=lambda rank: (rank.code, -rank.rank))
        if failure and failure.is_consequence:
            failure = killed or failure
        if self._received and (failure is None or failure.is_consequence or failure is killed):
            return self._interrupted(ranks)
        if failure or killed:
            return failure or killed
        if any(process.returncode for process in self._processes):
            return self._ended(ExitCode.FAILED, "before its log was opened", self._last_words())
        return self._ended(ExitCode.DONE)

    def _interrupted(self, ranks: list[Ending]) -> Ending:
        code = ExitCode.CANCELLED if signal.SIGINT in self._received else ExitCode.PREEMPTED
        if len(self._received) > 1:
            return self._ended(
                ExitCode.FAILED, "stopped at once", "the steps after the last checkpoint are lost"
            )
        if done := [rank for rank in ranks if not rank.failed]:
            return replace(done[0], code=code if done[0].code else ExitCode.DONE)
        if self._has_trained():
            message = f"no checkpoint was saved within {GRACE} seconds of the signal"
            return self._ended(ExitCode.FAILED, "no answer", message)
        return self._ended(code, message="stopped before the first step")

    def _ended(
        self, code: ExitCode, error: str = "", message: str = "", rank: int = -1, step: int = 0
    ) -> Ending:
        return Ending(
            code,
            rank,
            step,
            error,
            message,
            seconds=time.monotonic() - self._started,
            time=time.time(),
        )

    def _start(self, attempt: int, store: str, log: TextIO) -> None:
        self._observer, self._kill_at = Observer(self.folder), float("inf")
        self._processes = [
            # a rank reads no input: stream 0 is the user's error stream
            subprocess.Popen(
                command(self.folder, self.group),
                env=environment,
                start_new_session=True,
                stdin=_descriptor(sys.stderr, 2),
                stdout=_descriptor(sys.stdout, 1),
                stderr=log,
                preexec_fn=die_with_parent,
            )
            for environment in environments(self.group, self._started, store, attempt)
        ]
        for number in list(self._received):  # those that came before there was a process
            self._pass_on(number)

    def _starts_again(self, attempt: int) -> bool:
        """Return whether to start the ranks again, now that all are gone, and say so."""
        if self._received or attempt >= self.group.max_restarts:
            return False
        result = self.ending()
        if result.code != ExitCode.FAILED:
            return False
        which = f"{attempt + 1} of {self.group.max_restarts}"
        self._interject(f"{result.who}; restarting from the last checkpoint ({which})")
        return True

    def _alive(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self._processes if process.poll() is None]

    def receive(self, number: int) -> None:
        """Pass a signal on to the ranks; a second Ctrl-C kills them."""
        now = time.monotonic()
        if self._received and (number != signal.SIGINT or now - self._heard < ECHO):
            return
        self._heard = now
        self._received.append(number)
        self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if not (alive := self._alive()):
            return
        if len(self._received) > 1:
            self._kill()
            return
        if self._has_trained():
            self._interject(
                "stopping after this step, with a checkpoint; press Ctrl-C again to stop now"
            )
        self._kill_at = time.monotonic() + (GRACE + 10 if self._has_trained() else AFTERMATH)
        for process in alive:
            process.send_signal(number)

    def _interject(self, text: str) -> None:
        """Show a line while a rank may have its display on the same terminal."""
        self.say(interjection(text, sys.stderr))

    def _look_after(self) -> None:
        """Wait a little.

        Then kill what does not stop in time, and tell the user if the run makes no progress.
        """
        with suppress(subprocess.TimeoutExpired, IndexError):
            self._alive()[0].wait(0.3)
        if time.monotonic() > self._kill_at:
            self._kill()
        if self._has_failed():
            self._kill_at = min(self._kill_at, time.monotonic() + AFTERMATH)
        stall = self._observer.stall()
        if stall and not self._stalled:
            self._interject(f"{stall}; the stacks of all ranks are in {self.folder / 'logs'}")
        self._stalled = bool(stall)

    def _has_failed(self) -> bool:
        """Return whether a rank has failed; the others have nothing to wait for."""
        fine = (None, ExitCode.DONE, ExitCode.PREEMPTED, ExitCode.CANCELLED)
        return any(process.returncode not in fine for process in self._processes)

    def _kill(self) -> None:
        for process in self._alive():
            self._killed_here.add(process.pid)
            process.kill()

    def _has_trained(self) -> bool:
        return any(beat.phase != "start" for beat in self._observer.beats())

    def _sweep(self) -> None:
        """Kill what ranks have left behind.

        Each leads a process group, to which its loader workers belong.
        """
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _killed(self) -> Ending | None:
        """Return the ending of the first rank killed by a signal not sent from here.

        It could not write its own.
        """
        for rank, process in enumerate(self._processes):
            if process.returncode < 0 and process.pid not in self._killed_here:
                name = signal.Signals(-process.returncode).name
                steps = {beat.rank: beat.step for beat in self._observer.beats()}
                message = f"the process was killed by {name}"
                return self._ended(ExitCode.FAILED, name, message, rank, steps.get(rank, 0))
        return None

    def _last_words(self) -> str:
        """Return the last error written before a rank had opened its log."""
        lines = [
            line.strip()
            for line in self.log.read_text(errors="replace").splitlines()
            if line.strip()
        ]
        errors = [line for line in lines if _ERROR.match(line)]
        return (errors or lines or ["it ended without a message"])[-1]


def _descriptor(stream: TextIO, number: int) -> int:
    """Return a text stream's descriptor, or the process's own if it has none, as in a notebook."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return number
