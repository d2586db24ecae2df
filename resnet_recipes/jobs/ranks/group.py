"""The group of processes of a run: their number, environments, and life cycle."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from resnet_recipes import cuda
from resnet_recipes.base.cores import THREADS_VARIABLE, count_threads
from resnet_recipes.base.errors import (
    STOPPED_CODES,
    Command,
    ExitCode,
    Hint,
    NotReadyError,
    Problem,
    Statement,
    list_advice,
)
from resnet_recipes.base.processes import die_with_parent
from resnet_recipes.base.text import format_count
from resnet_recipes.doctor.unused_gpu import (
    find_untested_machine,
    find_unused_gpu,
    make_missing_gpu_problem,
)
from resnet_recipes.jobs.ranks.rank import LaunchFacts

if TYPE_CHECKING:  # it imports torch, which a launcher does not need
    from resnet_recipes.recipe.sections import LaunchConfig

#: Seconds that a rank may take to finish its step and save.
SAVE_SECONDS = 120

#: Variables that keep the ports of a single-machine run off the network.
LOOPBACK_VARIABLES = dict.fromkeys(
    ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), "lo" if sys.platform == "linux" else "lo0"
)

#: On a CPU, every step allocates and frees its activations. Keeping freed memory, in huge pages,
#: makes this faster.
ALLOCATOR_VARIABLES = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0"
    ":glibc.malloc.trim_threshold=1099511627776",
    "THP_MEM_ALLOC_ENABLE": "1",  # the same in the torch allocator
}

#: Maximum length of TMPDIR. A socket path has at most 107 bytes, and multiprocessing appends 32:
#: "/pymp-12345678/listener-12345678".
MAX_TMPDIR = 75

RANK_MODULE = "resnet_recipes.jobs"


@dataclass(frozen=True)
class Group:
    """How many ranks to start on this machine, and how often to restart them."""

    ranks: int = 1
    max_restarts: int = 0


def make_group(config: "LaunchConfig") -> Group:
    """Return the group that a recipe asks for.

    Raises NotReadyError if GPUs or a usable TMPDIR are missing.
    """
    NotReadyError.raise_if_any(find_group_problems(config))
    return Group(count_ranks(config), config.max_restarts)


def count_ranks(config: "LaunchConfig") -> int:
    """Return the number of ranks of a recipe, which may exceed the GPUs of this machine."""
    if config.gpus != "auto":
        return int(config.gpus)
    return 1 if config.device == "cpu" else max(1, cuda.find_gpus().count)


def is_for_gpus(config: "LaunchConfig") -> bool:
    """Return whether the ranks of a recipe run on GPUs, which this machine may lack."""
    if config.device == "cpu":
        return False
    return config.device == "cuda" or config.gpus != "auto" or cuda.find_gpus().count > 0


def find_group_problems(config: "LaunchConfig") -> Iterator[Problem]:
    """Yield a problem if this machine lacks a usable TMPDIR, and one if it lacks GPUs."""
    yield from find_temporary_folder_problems()
    if config.device == "cpu":
        return
    gpus = cuda.find_gpus().count
    if config.device == "cuda" and not gpus:
        yield make_missing_gpu_problem("launch.device", "cuda", "launch.device=cpu")
    elif config.gpus != "auto" and int(config.gpus) > gpus:
        plan = Hint("`resnet-recipes plan` with these arguments plans for another machine")
        fix = f"gpus={gpus}" if gpus else "launch.device=cpu gpus=auto"
        problem = make_missing_gpu_problem("launch.gpus", int(config.gpus), fix)
        if gpus:
            clause = Statement(f"this machine has {format_count(gpus, 'GPU')}")
            problem = problem._replace(clause=clause, fix=fix)
        yield problem._replace(fix=(*problem.advice, plan))


def find_temporary_folder_problems() -> Iterator[Problem]:
    """Yield the problem of the folder for temporary files, which contains worker sockets."""
    try:
        folder = tempfile.gettempdir()
    except OSError as error:
        clause: str = Statement(f"no folder for temporary files is writable: {error.strerror}")
        yield Problem("TMPDIR", None, clause, Command("export TMPDIR=/a/writable/folder"))
        return
    if len(os.fsencode(folder)) > MAX_TMPDIR:
        clause = f"is longer than {MAX_TMPDIR} bytes: sockets in it would exceed the system's limit"
        yield Problem(f"TMPDIR={folder}", None, clause, Command("export TMPDIR=/tmp"))


def iterate_warnings(config: "LaunchConfig") -> Iterator[str]:
    """Yield warnings about unused GPUs and untested machines."""
    if config.device != "cpu":
        for alarm, finding in (
            ("NO GPU IS USED", find_unused_gpu()),
            ("UNTRIED", find_untested_machine()),
        ):
            if finding:
                yield f"{alarm}: {'; '.join([finding.what, *list_advice(finding.fix)])}"


def build_command(folder: Path) -> list[str]:
    """Return the command of each rank for the task of a folder.

    Even a single rank is a separate process, so that the launcher can report a crash in a library
    or an out-of-memory kill.
    """
    return [sys.executable, "-m", RANK_MODULE, str(folder)]


def build_environments(group: Group, attempt: int) -> list[dict[str, str]]:
    """Return the environment of each rank: the user's, torchrun variables, and our defaults."""
    threads = {THREADS_VARIABLE: str(count_threads(group.ranks))}
    defaults = ALLOCATOR_VARIABLES | get_allocator_settings() | threads
    fixed = {
        "PYTHONSAFEPATH": "1",  # do not import modules from the current folder
        "PYTHONUNBUFFERED": "1",
    }
    world = {
        "WORLD_SIZE": str(group.ranks),
        "LOCAL_WORLD_SIZE": str(group.ranks),
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
    }
    common = defaults | LOOPBACK_VARIABLES | os.environ | fixed | world
    return [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(group.ranks)]


def get_allocator_settings() -> dict[str, str]:
    """Return the variable that prevents GPU memory fragmentation when image sizes change.

    Empty if the user has configured the allocator, or without an NVIDIA driver.
    """
    is_set = bool({"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & os.environ.keys())
    if is_set or not cuda.has_nvml():
        return {}
    return {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


#: The line of a traceback with the error.
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")

#: Exit codes of ranks that have not failed; None: still running.
_FINE = (None, ExitCode.DONE, *STOPPED_CODES)


class KilledRank(NamedTuple):
    """A rank that was killed by a signal."""

    rank: int
    signal: str  # "SIGKILL"


class Ranks:
    """One process per rank; each leads a process group that includes its loader workers."""

    def __init__(
        self,
        folder: Path,
        environments: Sequence[Mapping[str, str]],
        launch: LaunchFacts,
        log: TextIO,
    ):
        """Start a process for each environment.

        `log` receives the stderr of each rank until the rank opens its own log.
        """
        console = os.dup(_get_descriptor(sys.stderr, 2))  # descriptor 2 itself is the log of a rank
        launch._replace(console=console).write(folder)
        self._log = log
        self._killed_ranks: set[int] = set()  # ranks killed by this launcher
        self._processes = [
            subprocess.Popen(
                build_command(folder),
                env=environment,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                pass_fds=[console],
                stdout=_get_descriptor(sys.stdout, 1),
                stderr=log,
                preexec_fn=die_with_parent,
            )
            for environment in environments
        ]
        os.close(console)

    @property
    def running(self) -> list[int]:
        """The ranks whose processes are still running."""
        return [rank for rank, process in enumerate(self._processes) if process.poll() is None]

    @property
    def has_failed(self) -> bool:
        """Whether a rank has failed according to its exit code; the others would wait forever."""
        return any(process.returncode not in _FINE for process in self._processes)

    @property
    def has_nonzero_code(self) -> bool:
        """Whether a rank ended with a nonzero code."""
        return any(process.returncode for process in self._processes)

    def find_killed(self) -> KilledRank | None:
        """Return the lowest rank that a signal ended, except by `kill`, or None.

        The signal may also come from the rank itself, such as SIGSEGV.
        """
        for rank, process in enumerate(self._processes):
            if (process.returncode or 0) < 0 and rank not in self._killed_ranks:
                return KilledRank(rank, signal.Signals(-process.returncode).name)
        return None

    def wait(self, seconds: float) -> None:
        """Wait until the lowest running rank ends, at most `seconds`."""
        with suppress(subprocess.TimeoutExpired):
            for rank in self.running[:1]:
                self._processes[rank].wait(seconds)

    def send(self, number: int) -> None:
        """Send a signal to the running ranks."""
        for rank in self.running:
            self._processes[rank].send_signal(number)

    def kill(self) -> None:
        """Kill the running ranks."""
        for rank in self.running:
            self._killed_ranks.add(rank)
            self._processes[rank].kill()

    def kill_leftovers(self) -> None:
        """Kill child processes of ranks that have ended."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def read_last_error(self) -> str:
        """Return the last error that a rank printed before it had a log."""
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        errors = [line for line in lines if _ERROR.match(line)]
        return (errors or lines or ["it ended without a message"])[-1]


def _get_descriptor(stream: TextIO, number: int) -> int:
    """Return the descriptor of a text stream, or `number` if it has none, as in a notebook."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return number
