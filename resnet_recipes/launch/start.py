"""The launcher: starts the processes of a run, passes signals on, and says how it ended. It trains nothing itself."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from resnet_recipes.errors import ExitCode
from resnet_recipes.launch.group import GRACE, Group, command, environment
from resnet_recipes.process import ending, watchdog
from resnet_recipes.process.ending import Ending
from resnet_recipes.process.lock import RunLock
from resnet_recipes.process.rank_process import die_with_parent
from resnet_recipes.process.watchdog import Beat
from resnet_recipes.report.terminal import SHOW_CURSOR, interjection

#: Seconds that ranks may take to stop where there is nothing to save: after one has failed, and before the first step.
AFTERMATH = 5

#: Seconds in which a second signal is the first one come twice, through a wrapper or from a closing terminal, and not a hand's.
ECHO = 0.5

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


def start(folder: Path, group: Group, say: Callable[[str], None]) -> Ending:
    """Train the frozen recipe in `folder` and return how that ended; nothing is left running. Raises NotReadyError if it is in use.

    `say` shows a line to the user. To be called in the main thread. The ending is also written to RUN/exit.json.
    """
    # On several nodes the folder may be shared by their launchers; there rank 0 holds the lock.
    with RunLock(folder) if group.nodes == 1 else nullcontext():
        launch = Launch(folder, group, say)
        with launch.receiving_signals():
            launch.supervise()
        result = launch.ending()
    ending.write(folder / "exit.json", result)
    if result.failed:
        say(result.explained(folder, group.ranks, launch.began))
    return result


class Launch:
    """One start of a group of processes, from its first to its last."""

    def __init__(self, folder: Path, group: Group, say: Callable[[str], None]):
        self.folder, self.group, self.say = folder, group, say
        self.began = time.time()
        # The noise of the launched command, and what ranks say before they have a log; launchers of several nodes may share the folder.
        name = "launcher" if group.nodes == 1 else f"launcher-{socket.gethostname()}-{os.getpid()}"
        self.log = folder / "logs" / f"{name}.log"
        self._received: list[int] = []
        self._heard = 0.0                                   # when the last of them came
        self._process: subprocess.Popen[bytes] | None = None
        self._kill_at = float("inf")                        # a reading of time.monotonic()
        self._stalled = False

    def supervise(self) -> None:
        """Start the processes and stay until all are gone."""
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                command(self.folder, self.group), env=environment(self.group, time.monotonic()), start_new_session=True,
                # The user's error stream goes down as stream 0: torchrun hands on three, and a rank needs all of them. See process.
                stdin=_descriptor(sys.stderr, 2), stdout=_descriptor(sys.stdout, 1), stderr=log, preexec_fn=die_with_parent,
            )
        for number in list(self._received):                 # those that came before there was anybody to tell
            self._pass_on(number)
        while self._process.poll() is None:
            self._look_after(self._process)
        self._sweep()
        if sys.stderr.isatty():
            sys.stderr.write(SHOW_CURSOR)                   # a killed rank could not

    @contextmanager
    def receiving_signals(self) -> Iterator[None]:
        """Pass on what this process is told inside the context."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, lambda number, _: self._receive(number)) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def ending(self) -> Ending:
        """Return how it went, after all processes are gone."""
        assert self._process is not None
        ranks, killed = ending.endings(self.folder, self.began), self._killed()
        failure = ending.first_failure(ranks)
        if self._all_done(ranks) and not killed and not self._received:
            return max(ranks, key=lambda rank: (rank.code, -rank.rank))
        if failure and failure.is_consequence:
            failure = killed or failure
        if self._received and (failure is None or failure.is_consequence or failure is killed):
            return self._interrupted(ranks)
        if failure or killed:
            return failure or killed
        if self._process.returncode < 0:
            name = signal.Signals(-self._process.returncode).name
            return Ending(ExitCode.FAILED, -1, error=name, message=f"torchrun was ended by {name}, and the ranks with it", time=time.time())
        if self._process.returncode:
            return Ending(ExitCode.FAILED, -1, error="before it could say why", message=self._last_words(), time=time.time())
        return Ending(ExitCode.DONE, time=time.time())

    def _interrupted(self, ranks: list[Ending]) -> Ending:
        code, now = ExitCode.CANCELLED if signal.SIGINT in self._received else ExitCode.PREEMPTED, time.time()
        if len(self._received) > 1:
            return Ending(ExitCode.FAILED, -1, error="stopped at once", message="the steps after the last checkpoint are lost", time=now)
        if done := [rank for rank in ranks if not rank.failed]:
            return replace(done[0], code=code if done[0].code else 0)
        if self._has_trained():
            message = f"no checkpoint was saved within {GRACE} seconds of the signal"
            return Ending(ExitCode.FAILED, -1, error="no answer", message=message, time=now)
        return Ending(code, message="stopped before the first step", time=now)

    def _receive(self, number: int) -> None:
        now = time.monotonic()
        if self._received and now - self._heard < ECHO:
            return
        self._heard = now
        self._received.append(number)
        if self._process is not None:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        assert self._process is not None
        if len(self._received) > 1:
            self._process.kill()                            # its ranks die with it
            return
        if self._has_trained():
            self._interject("stopping after this step, with a checkpoint; once more stops now")
        self._kill_at = time.monotonic() + (GRACE + 10 if self._has_trained() else AFTERMATH)
        # torchrun passes on two kinds of signals to its ranks
        self._process.send_signal(number if number == signal.SIGINT or not self.group.by_torchrun else signal.SIGTERM)

    def _interject(self, text: str) -> None:
        """Show a line while a rank may have its display on the same terminal."""
        self.say(interjection(text, sys.stderr))

    def _look_after(self, process: subprocess.Popen[bytes]) -> None:
        """Wait a little; then see whether somebody must be helped to stop, or the user told that nothing moves."""
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.3)
        if time.monotonic() > self._kill_at:
            process.kill()
        ranks = ending.endings(self.folder, self.began)
        if self._all_done(ranks):
            self._kill_at = min(self._kill_at, time.monotonic() + self._patience(ranks))
        elif not self.group.max_restarts and ending.first_failure(ranks):
            self._kill_at = min(self._kill_at, time.monotonic() + AFTERMATH)        # torchrun would give the others 30 seconds
        stall = watchdog.stall(self._beats(), time.time())
        if stall and not self._stalled:
            self._interject(f"{stall}; the stacks of all ranks are in {self.folder / 'logs'}")
        self._stalled = bool(stall)

    def _all_done(self, ranks: list[Ending]) -> bool:
        """Tell whether the ranks have said that they ended well: all of this node, and none of another's that can be heard has not."""
        ended = {rank.rank: rank.time for rank in ranks}
        own = [ended.get(beat.rank, 0) >= beat.time for beat in self._own()]        # one that beats after its end has been started again
        return len(own) == self.group.local_ranks and all(own) and not any(rank.failed for rank in ranks)

    def _patience(self, ranks: list[Ending]) -> float:
        """Return the seconds that torchrun gets to end after its ranks.

        On one node it takes seconds, and has nothing to add. On several it waits for the others: at the end of a run all come, but
        after an interruption those that were told of it are gone, and it would wait for five minutes. Where nobody told this launcher,
        it may have been torchrun that stopped the ranks, to start them again with more nodes or fewer.
        """
        if self.group.nodes == 1:
            return 0.5
        was_told = self._received or not self.group.max_restarts
        return AFTERMATH if was_told and any(rank.code for rank in ranks) else float("inf")

    def _beats(self) -> list[Beat]:
        return [beat for beat in watchdog.beats(self.folder) if beat.time >= self.began]

    def _own(self) -> list[Beat]:
        """Return the beats of the ranks that this launcher started: on several nodes, not all are."""
        assert self._process is not None
        return [beat for beat in self._beats() if beat.host == socket.gethostname() and self._process.pid in (beat.pid, beat.parent)]

    def _has_trained(self) -> bool:
        return any(beat.phase != "start" for beat in self._beats())

    def _sweep(self) -> None:
        """Kill what ranks have left behind: each leads a process group, to which its loader workers belong."""
        for beat in self._own():
            with suppress(ProcessLookupError):
                os.killpg(beat.pid, signal.SIGKILL)

    def _killed(self) -> Ending | None:
        """Return the ending of a rank that a signal killed, which could not write one itself; torchrun's report names it."""
        assert self._process is not None
        if not self.group.by_torchrun:
            found = [(0, -self._process.returncode)] if self._process.returncode < 0 else []
        else:
            report = self.log.read_text(errors="replace")
            found = [(int(rank), int(number)) for rank, number in re.findall(r"rank\s*:\s*(\d+) .*\n\s*exitcode\s*:\s*-(\d+)", report)]
        for rank, number in found:
            if number != signal.SIGTERM:                    # which torchrun sends to the survivors
                steps = {beat.rank: beat.step for beat in self._beats()}
                name = signal.Signals(number).name
                return Ending(ExitCode.FAILED, rank, steps.get(rank, 0), name, f"the process was ended by {name}", time.time())
        return None

    def _last_words(self) -> str:
        """Return the last error that was written before a rank had a log of its own."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return (errors or lines or ["it ended without a word"])[-1]


def _descriptor(stream: TextIO, number: int) -> int:
    """Return the descriptor behind a text stream, or the process's own where it has none, as in a notebook."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return number
