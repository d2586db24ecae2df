"""How a process of a run ended: written by itself, read by the launcher, since torchrun makes every exit code a 1."""

import json
import re
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from resnet_recipes import atomic
from resnet_recipes.errors import ExitCode
from resnet_recipes.report.text import printable

#: Where ranks talk to each other: a RuntimeError raised here is how torch tells that another rank is gone.
_COMMUNICATION = ("torch.distributed.", "torch.nn.parallel.", "torch.autograd.", "resnet_recipes.train.distributed")

#: Known causes: what the message has in it, and what to do about it.
_HINTS = (
    (r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
     "a smaller batch.bn_size takes less memory and leaves batch.global_size, and so the result, nearly as they are"),
    (r"SIGBUS|bus error|/dev/shm|shared memory|unable to mmap|shm_open",
     "shared memory is full: start the container with --shm-size=16g or --ipc=host, or lower data.workers and data.prefetch"),
    (r"SIGKILL",
     "killed from outside, most often because the machine ran out of memory (see dmesg): lower data.workers or data.prefetch"),
    (r"truncated|cannot identify image|broken data stream", "replace the file, or leave it out with data.on_bad_image=skip"),
    (r"address already in use|EADDRINUSE", "another program has the port: choose a free one in launch.rdzv"),
    (r"torchvision::nms does not exist|undefined symbol",
     "torch and torchvision do not fit each other: install both anew, in one command"),
    (r"driver version is insufficient|no kernel image",
     "this torch does not fit the GPU or its driver: update the driver, or change torch"),
    (r"too many open files", "raise the limit: ulimit -n 65536"),
    (r"no space left", "make room, and resume"),
    (r"timed out|timeout", "a rank or a node does not answer: look into its log; between nodes, check firewall and NCCL_SOCKET_IFNAME"),
    (r"nccl", "set NCCL_DEBUG=INFO and resume, to see which connection fails; all nodes need the same torch and NCCL"),
)


@dataclass(frozen=True)
class Ending:
    """How a process, or a run, ended."""

    code: int                   # an ExitCode, or that of a launched command
    rank: int = 0               # -1: none of them, but the launched command
    step: int = 0               # steps completed
    error: str = ""             # class of the error, or the signal that killed the process
    message: str = ""
    time: float = 0.0           # seconds since the epoch
    attempt: int = 0            # elastic restarts before this one
    is_consequence: bool = False        # the process failed because another one had

    @property
    def failed(self) -> bool:
        """Tell whether this is a failure, and not an end or an interruption."""
        return self.code not in (ExitCode.DONE, ExitCode.PREEMPTED, ExitCode.CANCELLED)

    @property
    def hint(self) -> str:
        """Return what to do, if the cause is a known one."""
        text = f"{self.error} {self.message}"
        return next((hint for pattern, hint in _HINTS if re.search(pattern, text, re.IGNORECASE)), "")

    @property
    def who(self) -> str:
        """Return what failed, and with which error."""
        return f"rank {self.rank} failed ({self.error})" if self.rank >= 0 else f"the run failed ({self.error})"

    def explained(self, folder: Path, ranks: int, started: float) -> str:
        """Return the failure in a few lines for the user: who, when, what, what to do, where to look, how to go on."""
        if self.code in (ExitCode.RECIPE, ExitCode.NOT_READY):
            return "\n".join(map(printable, f"error: {self.message}".splitlines()))
        after = time.strftime("%H:%M:%S", time.gmtime(max(0.0, self.time - started)))
        others = {1: "", 2: "; the other rank was stopped"}.get(ranks, f"; the other {ranks - 1} ranks were stopped")
        where = f", after {self.step:,} steps" if self.step else ", before the first step" if self.rank >= 0 else ""
        lines = [f"{self.who} {after} after start{where}{others if self.rank >= 0 else ''}"]
        lines += [f"  {printable(line)}" for line in self.message.splitlines()]
        lines += [f"  what to do:  {self.hint}"] * bool(self.hint)
        return "\n".join([*lines, f"  log: {log_path(folder, self.rank)}     resume: resnet-train --resume {folder}"])


def log_path(folder: Path, rank: int) -> Path:
    """Return where a rank's output goes; the folder of all logs for rank -1."""
    return folder / "logs" / f"rank{rank}.log" if rank >= 0 else folder / "logs"


def write(path: Path, ending: Ending) -> None:
    """Write an ending, whole or not at all; a full disk does not hide the error that is being reported."""
    try:
        path.parent.mkdir(exist_ok=True)
        atomic.write_text(path, json.dumps(asdict(ending)))
    except OSError as error:
        sys.stderr.write(f"{path} could not be written: {error.strerror}\n")


def read(path: Path) -> Ending | None:
    """Return an ending that was written; None if there is none."""
    try:
        return Ending(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def endings(folder: Path, since: float) -> list[Ending]:
    """Return how the ranks of a run ended since then, in the last attempt."""
    found = [ending for path in (folder / "endings").glob("rank*.json") if (ending := read(path)) and ending.time >= since]
    last = max((ending.attempt for ending in found), default=0)
    return [ending for ending in found if ending.attempt == last]


def lost_a_peer(error: BaseException) -> bool:
    """Tell whether an error is how torch notices the loss of another rank: by where it was raised, whatever its text says."""
    if any(kind.__name__ == "DistError" for kind in type(error).__mro__):
        return True
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return type(error) is RuntimeError and bool(frames) and frames[-1].f_globals.get("__name__", "").startswith(_COMMUNICATION)


def first_failure(candidates: Iterable[Ending]) -> Ending | None:
    """Return the failure that came first and was not the consequence of another."""
    return min((ending for ending in candidates if ending.failed), key=lambda ending: (ending.is_consequence, ending.time), default=None)
