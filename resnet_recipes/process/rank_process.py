"""A rank as a process: what surrounds its training so that it is heard, watched, and gone when it should be."""

import ctypes
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, NoReturn, TextIO

from resnet_recipes.errors import ExitCode, RecipeError, TrainingError
from resnet_recipes.process.ending import Ending, endings, first_failure, log_path, lost_a_peer, write
from resnet_recipes.process.lock import RunLock
from resnet_recipes.process.signals import Interruption
from resnet_recipes.process.watchdog import Watchdog

#: Set by the launcher for its ranks: when the command began, a reading of time.monotonic(), and whether it holds the folder's lock.
STARTED, LOCKED = "RESNET_RECIPES_STARTED", "RESNET_RECIPES_LOCKED"

_LIBC = ctypes.CDLL(None)


class RankProcess(NamedTuple):
    """What a rank's process has for its training."""

    folder: Path
    rank: int
    console: TextIO                     # what the user sees as the error stream; stderr itself is this rank's log
    started: float                      # when the command began, a reading of time.monotonic()
    interruption: Interruption
    watchdog: Watchdog


def run_rank(folder: Path, work: Callable[[RankProcess], int]) -> NoReturn:
    """Do the work of one rank, write how it ended to RUN/endings, and end the process with that exit code.

    `work` returns 0, or the exit code of an interruption after which it saved; it leaves nothing open. The process ends without tidying
    up: taking torch down costs the interpreter 2 seconds, other ranks must not wait for one that has failed, and the threads of
    a process group can abort a process at its exit.
    """
    rank = int(os.environ.get("RANK", 0))
    if STARTED in os.environ or "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()
    interruption = Interruption()
    interruption.install()
    began, launched = time.time(), STARTED in os.environ
    console, started = _streams(folder, rank), float(os.environ.get(STARTED, time.monotonic()))
    watchdog = None
    try:
        with _lock(folder, rank):
            watchdog = Watchdog(folder, rank)
            code = work(RankProcess(folder, rank, console, started, interruption, watchdog))
            ending = Ending(code, rank, watchdog.step, message=interruption.reason if code else "")
    except BaseException as error:
        if isinstance(error, RecipeError | TrainingError):
            code, name, message = error.exit_code, type(error).__name__, str(error)
        else:
            code, name, message = ExitCode.FAILED, type(error).__name__, str(error) or "without a message"
        traceback.print_exc()
        ending = Ending(code, rank, watchdog.step if watchdog else 0, name, message, is_consequence=lost_a_peer(error))
    ending = _recorded(folder, ending)
    if not launched:
        _say(folder, ending, began, console)
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    # Under torchrun an interruption is a normal end: as a failure, it would be started again by --max-restarts.
    is_quiet = not ending.failed and "TORCHELASTIC_RUN_ID" in os.environ and launched
    os._exit(0 if is_quiet else ending.code)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Let the kernel kill this process when its parent dies (Linux): ranks of a killed launcher would train on as orphans."""
    if sys.platform == "linux":
        parent = os.getppid()
        _LIBC.prctl(1, number)                      # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os.kill(os.getpid(), number)


def _streams(folder: Path, rank: int) -> TextIO:
    """Send stderr, and unless rank 0 stdout, to this rank's log; return the user's error stream.

    torchrun hands down only streams 0 to 2, and mixes its own noise into stderr. A rank reads no input, so our launcher gives the
    user's error stream as stream 0.
    """
    console = os.fdopen(os.dup(0 if STARTED in os.environ else 2), "w", buffering=1)
    path = log_path(folder, rank)
    path.parent.mkdir(exist_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 2)
    if rank != 0:
        os.dup2(log, 1)
    os.close(log)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return console


def _lock(folder: Path, rank: int) -> AbstractContextManager[object]:
    """Lock the folder, unless the launcher has done so or another rank does."""
    return RunLock(folder) if rank == 0 and LOCKED not in os.environ else nullcontext()


def _recorded(folder: Path, ending: Ending) -> Ending:
    """Write the ending to RUN/endings, with its time and attempt, and return it."""
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    timed = replace(ending, time=time.time(), attempt=attempt)
    write(folder / "endings" / f"rank{ending.rank}.json", timed)
    return timed


def _say(folder: Path, ending: Ending, began: float, console: TextIO) -> None:
    """Do what our launcher does at the end, where there is none: one rank says what failed, and rank 0 writes how the run ended."""
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    is_everybodys = ending.code in (ExitCode.RECIPE, ExitCode.NOT_READY) and ending.rank != 0
    if ending.failed and first_failure(endings(folder, began)) == ending and not is_everybodys:
        console.write(ending.explained(folder, ranks, began) + "\n")
    if ending.rank == 0:
        write(folder / "exit.json", ending)
