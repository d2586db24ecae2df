"""The launcher starts the ranks of a run, forwards signals, and reports the ending.

It does not train.
"""

import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from math import inf
from pathlib import Path
from typing import TextIO

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import ExitCode
from resnet_recipes.base.text import Say
from resnet_recipes.jobs.ranks.group import SAVE_SECONDS, Group, Ranks, build_environments
from resnet_recipes.jobs.ranks.heartbeat import RankMonitor
from resnet_recipes.jobs.ranks.rank import LaunchFacts, read_task
from resnet_recipes.jobs.ranks.signals import handle_signals
from resnet_recipes.report.terminal import SHOW_CURSOR, format_interjection, is_live
from resnet_recipes.run_folder import EXIT, LOGS, ending
from resnet_recipes.run_folder.ending import Ending
from resnet_recipes.run_folder.lock import LockedFolder

#: Seconds for ranks to stop when there is nothing to save: after a rank failed, and before the
#: first step.
STOP_SECONDS = 5

#: Seconds after the first signal during which Ctrl-C is ignored, because a wrapper or a closing
#: terminal repeats it. Slurm repeats SIGTERM for longer, so only a later Ctrl-C stops immediately.
ECHO_SECONDS = 0.5


def start(
    locked_folder: LockedFolder, group: Group, say: Say, shows_all_times: bool = False
) -> Ending:
    """Run the training or the task of a folder, write its ending to RUN/exit.json and return it.

    Releases the lock. `shows_all_times` is passed to the summary. Signals are handled only in the
    main thread. Raises TrainingError if the folder was replaced during the run.
    """
    folder = locked_folder.path
    launch = Launch(folder, group, say, shows_all_times)
    # the handlers and the lock last until the ending is written, so a late signal has no effect
    with handle_signals(launch.receive), locked_folder:
        result = launch.run()
        locked_folder.confirm()
        ending.write_ending(folder / EXIT, result)
    if result.has_failed or (result.code and not result.step):
        for line in result.explain(folder, group.ranks, trains=not read_task(folder)):
            say(line)
    return result


class Request(Enum):
    """The latest request of the user or a scheduler."""

    TRAIN = auto()  # train until the end
    SAVE = auto()  # after a signal: finish the step, save, and stop
    KILL = auto()  # after a Ctrl-C that follows an earlier signal: stop now


class Launch:
    """One run, from the first start of its ranks to the last exit.

    Its state is the request, which signals change, and a deadline after which running ranks are
    killed. A request to save or a failed rank sets the deadline.
    """

    def __init__(self, folder: Path, group: Group, say: Say, shows_all_times: bool = False):
        self.folder, self.group, self.say = folder, group, say
        self._shows_all_times = shows_all_times
        self._request, self._deadline = Request.TRAIN, inf
        self._signal = 0  # signal that requested the save; 0: none
        self._signaled_at = 0.0  # time of the last accepted signal
        self._started_at = time.monotonic()
        self._ranks: Ranks | None = None
        self._is_stalled = False

    def run(self) -> Ending:
        """Start the ranks, restart them after failures if allowed, and return the last ending."""
        log_path = self.folder / LOGS / "launcher.log"
        log_path.parent.mkdir(exist_ok=True)
        log = log_path.open("w+", errors="replace")
        try:
            # the ranks meet through a file in a private folder, so they need no open port
            with atomic.make_temporary_folder() as store_folder:
                result = self._run_attempts(store_folder, log)
        finally:
            with suppress(OSError):  # a full network disk may fail only now, after the run
                log.close()
        if sys.stderr.isatty():
            sys.stderr.write(SHOW_CURSOR)  # a killed rank cannot restore the cursor
        return result

    def _run_attempts(self, store_folder: Path, log: TextIO) -> Ending:
        """Start the ranks until they end or may not restart; return the last ending."""
        for attempt in range(1 + self.group.max_restarts):
            self._monitor = RankMonitor(self.folder)
            self._deadline = inf
            facts = LaunchFacts(
                self._started_at, self._shows_all_times, f"{store_folder}/{attempt}"
            )
            self._ranks = Ranks(self.folder, build_environments(self.group, attempt), facts, log)
            self._pass_request()  # a signal may have arrived before the ranks started
            while self._ranks.running:
                self._ranks.wait(0.3)
                self._watch(self._ranks)
            self._ranks.kill_leftovers()
            result = self._make_ending(self._ranks)
            is_last = attempt == self.group.max_restarts or self._request != Request.TRAIN
            if is_last or result.code != ExitCode.FAILED:
                break
            which = f"{attempt + 1} of {self.group.max_restarts}"
            self._interject(
                f"{result.describe_failure(False)}; restarting from the last checkpoint ({which})"
            )
        return result

    def receive(self, number: int) -> None:
        """Handle a signal: the first requests a save, a later Ctrl-C stops the run now."""
        now = time.monotonic()
        if self._request == Request.TRAIN:
            self._request, self._signal = Request.SAVE, number
        elif number == signal.SIGINT and now - self._signaled_at >= ECHO_SECONDS:
            self._request = Request.KILL
        else:
            return
        self._signaled_at = now
        self._pass_request()

    def _pass_request(self) -> None:
        if self._request == Request.TRAIN or not self._ranks or not self._ranks.running:
            return
        if self._request == Request.KILL:
            self._ranks.kill()
            return
        if has_trained := self._has_trained():
            text = "saving a checkpoint"
            again = self._signal == signal.SIGINT
            if again or sys.stderr.isatty():  # else nobody can press it
                text += f"; press Ctrl-C{' again' if again else ''} to quit now"
            self._interject(text)
        self._deadline = time.monotonic() + (SAVE_SECONDS + 10 if has_trained else STOP_SECONDS)
        self._ranks.send(self._signal)

    def _watch(self, ranks: Ranks) -> None:
        """Kill ranks that do not stop in time; report a run without progress."""
        if time.monotonic() > self._deadline:
            ranks.kill()
        if ranks.has_failed:
            self._deadline = min(self._deadline, time.monotonic() + STOP_SECONDS)
        stall = self._monitor.describe_stall()
        if stall and not self._is_stalled:
            self._interject(f"{stall}; the stacks of all ranks are in {self.folder / LOGS}")
        self._is_stalled = bool(stall)

    def _make_ending(self, ranks: Ranks) -> Ending:
        """Return the ending of an attempt whose processes have all ended."""
        endings = self._monitor.read_endings()
        killed = self._make_ending_of_kill(ranks)
        failure = ending.find_first_failure(endings)
        if failure and failure.is_consequence:
            failure = killed or failure
        if self._request == Request.TRAIN:
            if not (failure or killed) and len(endings) == self.group.ranks:
                return max(endings, key=lambda ending: (ending.code, -ending.rank))
        elif failure is None or failure.is_consequence or failure is killed:
            return self._make_ending_of_stop(endings)
        if failure := failure or killed:
            return failure
        if ranks.has_nonzero_code:
            return self._make_ending_of_ranks(ranks)
        return self._make_run_ending(ExitCode.DONE)

    def _make_ending_of_ranks(self, ranks: Ranks) -> Ending:
        """Return the ending of ranks that failed without a record."""
        probe = self.folder / "probe"
        try:
            atomic.write_text(probe, "?")
            probe.unlink()
        except OSError as error:
            message = f"{self.folder} cannot be written to, so no rank could report how it ended"
            return self._make_run_ending(ExitCode.FAILED, str(error.strerror), message)
        return self._make_run_ending(
            ExitCode.FAILED, "before its log was opened", ranks.read_last_error()
        )

    def _make_ending_of_stop(self, endings: list[Ending]) -> Ending:
        if self._request == Request.KILL:
            message = "the steps after the last checkpoint are lost"
            return self._make_run_ending(ExitCode.FAILED, "stopped at once", message)
        is_cancelled = self._signal == signal.SIGINT
        code = ExitCode.CANCELLED if is_cancelled else ExitCode.PREEMPTED
        if done := [ending for ending in endings if not ending.has_failed]:
            return replace(done[0], code=code if done[0].code else ExitCode.DONE)
        if self._has_trained():
            message = f"no checkpoint was saved within {SAVE_SECONDS} seconds of the signal"
            return self._make_run_ending(ExitCode.FAILED, "timed out", message)
        return self._make_run_ending(code, message="stopped before the first step of this session")

    def _make_ending_of_kill(self, ranks: Ranks) -> Ending | None:
        """Return the ending of the lowest rank that a signal ended, which could not write one."""
        if not (killed := ranks.find_killed()):
            return None
        steps = {beat.rank: beat.step for beat in self._monitor.read_beats()}
        message = f"the process was killed by {killed.signal}"
        run_ending = self._make_run_ending(ExitCode.FAILED, killed.signal, message)
        return replace(run_ending, rank=killed.rank, step=steps.get(killed.rank, 0))

    def _make_run_ending(self, code: ExitCode, error: str = "", message: str = "") -> Ending:
        seconds = time.monotonic() - self._started_at
        return Ending(code, -1, 0, error, message, seconds=seconds, time=time.time())

    def _has_trained(self) -> bool:
        return any(beat.phase != "start" for beat in self._monitor.read_beats())

    def _interject(self, text: str) -> None:
        """Show a line while a rank may draw its progress on the same terminal."""
        if is_live(sys.stderr):
            sys.stderr.write(f"{format_interjection(text)}\n")
        else:
            self.say(text)
