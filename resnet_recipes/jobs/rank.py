"""The process of a rank: everything around its training, from its log to its exit code."""

import ctypes
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self, TextIO

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import REFUSED, NotReadyError
from resnet_recipes.base.reading import read_json
from resnet_recipes.base.text import Progress
from resnet_recipes.jobs.signals import Interruption
from resnet_recipes.jobs.watchdog import Observer, Watchdog
from resnet_recipes.report.terminal import make_lasting, protect_output
from resnet_recipes.report.waiting import Waiting
from resnet_recipes.run_folder import ENDINGS, EXIT, JOB, LAUNCH
from resnet_recipes.run_folder.ending import (
    Ending,
    find_first_failure,
    get_log_path,
    make_ending,
    write_ending,
)
from resnet_recipes.run_folder.lock import HeldFolder
from resnet_recipes.run_folder.metrics import Record

#: The parts of a run to train: the first step of each, and its end. Nearly always all that is left.
Spans = Sequence[tuple[int, int]]

#: Seconds in which a lower rank says what it refuses as well, under a launcher that is not ours.
_OTHERS = 2

_LIBC = ctypes.CDLL(None)


class LaunchFacts(NamedTuple):
    """What whoever starts a rank passes on to it."""

    started: float  # when the command began, a reading of time.monotonic()
    shows_all_times: bool = False  # the summary does, as --verbose asks
    # from our launcher, which holds the folder's lock
    meeting: str = ""  # the file through which its ranks meet
    console: int | None = None  # the inherited descriptor of the user's error stream

    @property
    def is_ours(self) -> bool:
        """Return whether our launcher started the rank, rather than torchrun or srun."""
        return self.console is not None

    def write(self, folder: Path) -> None:
        """Write them to the folder of the ranks' job. Raises NotReadyError."""
        try:
            atomic.write_text(folder / LAUNCH, json.dumps(self._asdict()))
        except OSError as error:
            raise NotReadyError.at(folder, f"cannot be written to: {error.strerror}") from None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the facts that a launcher wrote."""
        return cls(**read_json(folder / LAUNCH))


class RankProcess(NamedTuple):
    """What a rank's process provides for its training."""

    folder: Path
    rank: int
    console: TextIO  # the user's error stream; stderr itself is this rank's log
    launch: LaunchFacts
    interruption: Interruption
    watchdog: Watchdog
    # called with every record of the run, on rank 0
    on_record: Callable[[Record], None] | None = None


def read_job(folder: Path) -> dict[str, Any]:
    """Return the task of the ranks of a folder; empty if they train a run."""
    return read_json(folder / JOB, may_be_absent=True)


@contextmanager
def show_progress(process: RankProcess, what: str, unit: str = "images") -> Iterator[Progress]:
    """Yield a function that keeps a rank alive, and on rank 0 shows how much is done."""
    with Waiting(what, unit, process.console) as waiting:

        def progress(done: int, total: int) -> None:
            process.watchdog.beat(0, "start")
            if process.rank == 0:
                waiting(done, total)

        yield progress


def run_rank(held: HeldFolder, work: Callable[[RankProcess], int], launch: LaunchFacts) -> NoReturn:
    """Do the work of one rank, write how it ended to RUN/endings, and exit with that code.

    `work` returns DONE, or the exit code of an interruption after which it saved; it leaves nothing
    open. The process exits without cleaning up: tearing torch down takes 2 seconds, other ranks
    must not wait for one that failed, and threads of a process group can abort a process at its
    exit.
    """
    rank = int(os.environ.get("RANK", 0))
    if launch.is_ours or "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()
    interruption = Interruption()
    interruption.install()
    folder, observer = held.path, Observer(held.path)
    console = _redirect_output(folder, rank, launch.console)
    watchdog: Watchdog | None = None
    try:
        watchdog = Watchdog(held, rank)
        code = work(RankProcess(folder, rank, console, launch, interruption, watchdog))
        ending = Ending(code, message=interruption.reason if code else "")
    except BaseException as error:
        traceback.print_exc()
        ending = make_ending(error)
    ending = replace(
        ending,
        rank=rank,
        step=watchdog.step if watchdog else 0,
        seconds=time.monotonic() - launch.started,
        time=time.time(),
        attempt=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)),
        pid=os.getpid(),
    )
    if held.is_in_place:
        write_ending(folder / ENDINGS / f"rank{rank}.json", ending)
    if not launch.is_ours:
        _report(held, ending, observer, console)
    _exit(ending)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies (Linux).

    Orphaned ranks would keep training.
    """
    if sys.platform == "linux":
        parent = os.getppid()
        _LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def _redirect_output(folder: Path, rank: int, inherited: int | None) -> TextIO:
    """Send stderr, and unless rank 0 stdout, to this rank's log; return the user's error stream.

    It is the `inherited` descriptor, or stderr as this process found it.
    """
    protect_output()
    console = make_lasting(os.dup(2) if inherited is None else inherited, sys.stderr.encoding)
    path = get_log_path(folder, rank)
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


def _report(held: HeldFolder, ending: Ending, observer: Observer, console: TextIO) -> None:
    """Do what our launcher does at the end.

    The rank that failed first says so, and rank 0 writes how the run ended.
    """
    if ending.code in REFUSED and ending.rank:
        time.sleep(_OTHERS)
    if find_first_failure([*observer.read_endings(), ending]) == ending:
        console.write(ending.explained(held.path, int(os.environ.get("WORLD_SIZE", 1))) + "\n")
    if ending.rank == 0 and held.is_in_place:
        write_ending(held.path / EXIT, ending)


def _exit(ending: Ending) -> NoReturn:
    """End this process and its children at once."""
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ending.code)
