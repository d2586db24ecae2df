"""The process of a rank: everything around its training, from its log to its exit code."""

import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, TextIO

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import REJECTED_CODES, NotReadyError
from resnet_recipes.base.processes import die_with_parent
from resnet_recipes.base.reading import read_json
from resnet_recipes.base.text import Progress
from resnet_recipes.jobs.ranks.heartbeat import HeartbeatWriter, RankMonitor
from resnet_recipes.jobs.ranks.signals import Interruption
from resnet_recipes.report.progress import ProgressLine
from resnet_recipes.report.terminal import make_lasting, protect_output
from resnet_recipes.run_folder import ENDINGS, EXIT, LAUNCH, TASK
from resnet_recipes.run_folder.ending import (
    Ending,
    find_first_failure,
    get_log_path,
    make_ending,
    write_ending,
)
from resnet_recipes.run_folder.lock import HeldFolder
from resnet_recipes.run_folder.metrics import Record

if TYPE_CHECKING:  # it imports torch
    from resnet_recipes.training.reporter import Heartbeat

#: First step and end of each part of a run to train; usually one part, to the end of the run.
Spans = Sequence[tuple[int, int]]

#: Seconds that a rank waits for a lower rank to report the same error, under other launchers.
_WAIT_SECONDS = 2


class LaunchFacts(NamedTuple):
    """Facts that a launcher passes to its ranks."""

    started_at: float  # start of the command by time.monotonic()
    shows_all_times: bool = False  # whether the summary shows all times: --verbose
    # Our launcher, which holds the lock of the folder, sets these two.
    store_path: str = ""  # rendezvous file of its ranks
    console: int | None = None  # inherited descriptor of the user's stderr

    @property
    def is_ours(self) -> bool:
        """Whether our launcher started the rank, rather than torchrun or srun."""
        return self.console is not None

    def write(self, folder: Path) -> None:
        """Write the facts to the ranks' folder. Raises NotReadyError if that is impossible."""
        try:
            atomic.write_text(folder / LAUNCH, json.dumps(self._asdict()))
        except OSError as error:
            raise NotReadyError.at(folder, f"cannot be written to: {error.strerror}") from None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the facts written by a launcher."""
        return cls(**read_json(folder / LAUNCH))


class RankProcess(NamedTuple):
    """The resources of a rank's process."""

    folder: Path
    rank: int
    console: TextIO  # the user's stderr; stderr itself is the log of this rank
    launch: LaunchFacts
    interruption: Interruption
    heartbeat: "Heartbeat"
    # function that rank 0 calls with every record of the run
    on_record: Callable[[Record], None] | None = None


def read_task(folder: Path) -> dict[str, Any]:
    """Return the task of the ranks of a folder; empty if they train a run."""
    return read_json(folder / TASK, may_be_absent=True)


def import_task(folder: Path) -> Callable[[RankProcess], int]:
    """Return the function of the task of a folder: `run_task` of a module in jobs."""
    name = read_task(folder).get("task", "train")
    return import_module(f"resnet_recipes.jobs.{name}").run_task


@contextmanager
def show_progress(process: RankProcess, task: str, unit: str = "images") -> Iterator[Progress]:
    """Yield a function that writes a heartbeat and, on rank 0, shows progress."""
    with ProgressLine(task, unit, process.console) as show:

        def progress(done: int, total: int) -> None:
            process.heartbeat.beat(0, "start")
            if process.rank == 0:
                show(done, total)

        yield progress


def run_rank(
    held_folder: HeldFolder, work: Callable[[RankProcess], int], launch: LaunchFacts
) -> NoReturn:
    """Do the work of one rank, write its ending to RUN/endings, and exit with its code.

    `work` returns DONE, or the exit code of an interruption; it closes everything it opened. The
    process exits without cleanup, because unloading torch takes 2 seconds and other ranks must not
    wait for a failed rank. Threads of a process group can also abort a process at exit.
    """
    rank = int(os.environ.get("RANK", 0))
    if launch.is_ours or "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()
    interruption = Interruption()
    interruption.install()
    folder = held_folder.path
    monitor = RankMonitor(held_folder.path)
    console = _redirect_output(folder, rank, launch.console)
    heartbeat: HeartbeatWriter | None = None
    try:
        heartbeat = HeartbeatWriter(held_folder, rank)
        code = work(RankProcess(folder, rank, console, launch, interruption, heartbeat))
        ending = Ending(code, message=interruption.reason if code else "")
    except BaseException as error:
        traceback.print_exc()
        ending = make_ending(error)
    ending = replace(
        ending,
        rank=rank,
        step=heartbeat.step if heartbeat else 0,
        seconds=time.monotonic() - launch.started_at,
        time=time.time(),
        attempt=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)),
        pid=os.getpid(),
    )
    if held_folder.is_in_place:
        write_ending(folder / ENDINGS / f"rank{rank}.json", ending)
    if not launch.is_ours:
        _report(held_folder, ending, monitor, console)
    _exit(ending)


def _redirect_output(folder: Path, rank: int, inherited: int | None) -> TextIO:
    """Send stderr, and stdout except on rank 0, to the log of this rank; return the user's stderr.

    It is the `inherited` descriptor, or stderr at the start of this process. stdin becomes empty.
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


def _report(held_folder: HeldFolder, ending: Ending, monitor: RankMonitor, console: TextIO) -> None:
    """Report the ending as our launcher would.

    The rank that failed first prints the message, and rank 0 writes the ending of the run.
    """
    if ending.code in REJECTED_CODES and ending.rank:
        time.sleep(_WAIT_SECONDS)
    if find_first_failure([*monitor.read_endings(), ending]) == ending:
        ranks = int(os.environ.get("WORLD_SIZE", 1))
        console.write("\n".join([*ending.explain(held_folder.path, ranks), ""]))
    if ending.rank == 0 and held_folder.is_in_place:
        write_ending(held_folder.path / EXIT, ending)


def _exit(ending: Ending) -> NoReturn:
    """Kill the workers of this process, and end it immediately."""
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ending.code)
