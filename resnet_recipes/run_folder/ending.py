"""The ending of a process or a run: success, stop or failure.

Each process writes its own ending, because torchrun replaces every exit code with 1.
"""

import json
import re
import shlex
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import (
    REJECTED_CODES,
    STOPPED_CODES,
    BadTrainingImageError,
    BadValidationImageError,
    Command,
    ExitCode,
    Fix,
    Hint,
    RecipeError,
    TrainingError,
    format_advice,
)
from resnet_recipes.base.text import Snippet, escape_controls, format_count
from resnet_recipes.run_folder import CONFIG, LOGS

#: Functions that communicate between ranks. If torch raises a RuntimeError there, another rank is
#: gone.
_COMMUNICATION = (
    "torch.distributed.",
    "torch.autograd.",
    "resnet_recipes.training.distributed",
    "resnet_recipes.training.all_reduce",
)

_SHARED_MEMORY = (
    "start the container with --shm-size=16g or --ipc=host, or lower data.workers and data.prefetch"
)

#: Known causes: a pattern in the message, and advice.
_HINTS = (
    (
        r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        "lower batch.bn_size: this saves memory and barely changes the result",
    ),
    (
        r"ECC error|CUDA error: (unspecified launch failure|unknown error)",
        "a GPU or its memory may have failed: dmesg shows it as Xid; restart the machine, or "
        "resume without that GPU (CUDA_VISIBLE_DEVICES)",
    ),
    (r"/dev/shm|shared memory|unable to mmap|shm_open", f"shared memory is full: {_SHARED_MEMORY}"),
    (
        r"SIGBUS|bus error",
        "a file was truncated while it was read, or shared memory is full. Check the data "
        f"(resnet-recipes doctor data PATH); if df /dev/shm shows no space, {_SHARED_MEMORY}",
    ),
    (
        r"SIGKILL",
        "the machine probably ran out of memory (see dmesg): lower data.workers or data.prefetch",
    ),
    (
        r"image file is truncated|cannot identify image|broken data stream",
        "replace the file, or skip it with data.on_bad_image=skip",
    ),
    (
        r"address already in use|EADDRINUSE",
        "another program uses the port: choose a free port with MASTER_PORT, or with "
        "--rdzv-endpoint of torchrun",
    ),
    (
        r"torchvision::nms does not exist|undefined symbol",
        "torch and torchvision do not match: reinstall both with one command",
    ),
    (
        r"driver version is insufficient|no kernel image",
        "this torch does not support the GPU or its driver: update the driver, or install "
        "another torch",
    ),
    (r"too many open files", "raise the limit: ulimit -n 65536"),
    (r"can.t start new thread", "raise the limit on processes: ulimit -u unlimited"),
    (r"no space left", "free some space, and resume"),
    (r"file too large", "raise the limit on the size of files: ulimit -f unlimited"),
    (
        r"MemoryError|bad_alloc|can.t allocate memory",
        "memory is too small: lower batch.bn_size or data.workers; if it is limited, "
        "ulimit -v unlimited",
    ),
    (
        r"timed out|timeout",
        "a rank or a node does not respond: see its log; between nodes, check the firewall and "
        "NCCL_SOCKET_IFNAME",
    ),
    (
        r"nccl",
        "resume with NCCL_DEBUG=INFO to see which connection fails; all nodes need the same "
        "torch and NCCL",
    ),
)

#: Settings that a command needs to resume a run after an error in the images; None if it would fail
#: again, because a run resumes only with the same validation images.
RESUME_SETTINGS = {
    BadTrainingImageError.__name__: " data.on_bad_image=skip",
    BadValidationImageError.__name__: None,
}


def format_resume(folder: Path | str, settings: str = "") -> Command:
    """Return the command that resumes a run, with `settings` after a space."""
    return Command(f"resnet-train --resume {shlex.quote(str(folder))}{settings}")


def suggest_restart(folder: Path) -> Fix:
    """Return the command that trains with the recipe of a run again."""
    return Command.of("resnet-train", str(folder / CONFIG)), Hint("this starts a new run")


@dataclass(frozen=True)
class Ending:
    """The ending of a process or a run."""

    code: int  # an ExitCode
    rank: int = 0  # -1: the complete run
    step: int = 0  # completed steps
    error: str = ""  # error class, or the signal that killed the process
    message: str = ""
    seconds: float = 0.0  # seconds since the command started, even if the clock was set
    # seconds since 1970, to order failures on different machines
    time: float = 0.0
    attempt: int = 0  # number of elastic restarts before this one
    pid: int = 0
    is_consequence: bool = False  # whether the process failed because another process failed

    @property
    def has_failed(self) -> bool:
        """Whether the run neither finished nor stopped on request."""
        return self.code not in (ExitCode.DONE, *STOPPED_CODES)

    @property
    def hint(self) -> str:
        """Advice for a known cause, or ""; the message about a damaged image has its own."""
        if self.error in RESUME_SETTINGS:
            return ""
        text = f"{self.error} {self.message}"
        return next(
            (hint for pattern, hint in _HINTS if re.search(pattern, text, re.IGNORECASE)), ""
        )

    def describe_failure(self, is_alone: bool) -> str:
        """Return the part that failed, and the class of an error that is not ours.

        `is_alone`: whether the run has a single rank, which users need not know.
        """
        is_ours = self.error in (TrainingError.__name__, *RESUME_SETTINGS)
        cause = "" if is_ours else f" ({self.error})"
        rank = "training" if is_alone else f"rank {self.rank}"
        return f"{rank if self.rank >= 0 else 'the run'} failed{cause}"

    def explain(self, folder: Path, ranks: int, trains: bool = True) -> list[str]:
        """Return the lines for the user: rank, time, cause, advice, logs, how to resume."""
        return [*map(escape_controls, self._format_lines(folder, ranks, trains))]

    def _format_lines(self, folder: Path, ranks: int, trains: bool) -> list[str]:
        more = RESUME_SETTINGS.get(self.error, "")
        resume = f"resume: {format_resume(folder, more)}" if trains and more is not None else ""
        if not self.has_failed:
            return [Snippet(f"{self.message}; {resume}") if trains else "stopped"]
        if self.code in REJECTED_CODES:
            where = f"  on rank {self.rank}; log: {get_log_path(folder, self.rank)}"
            lines = list[str](map(Snippet, f"error: {self.message}".splitlines()))
            lines += [where] * (self.rank > 0)
            hint = Hint("replace or delete the image, then start a new run")
            return [*lines, f"      {format_advice(hint)}"] if trains and more is None else lines
        after = time.strftime("%H:%M:%S", time.gmtime(max(0.0, self.seconds)))
        where = f", after {format_count(self.step, 'step')}" if self.step else ""
        if self.rank >= 0:
            where = where or ", before the first step"
            where += {1: "", 2: "; the other rank was stopped"}.get(
                ranks, f"; the other {ranks - 1} ranks were stopped"
            )
        lines = [f"{self.describe_failure(ranks == 1 and trains)} {after} after start{where}"]
        lines += [Snippet(f"  {line}") for line in self.message.splitlines()]
        if self.hint:
            lines.append(f"  {format_advice(Hint(self.hint))}")
        last = [f"log: {get_log_path(folder, self.rank)}", *filter(None, [resume])]
        return [*lines, *(Snippet(f"  {line}") for line in last)]


def make_ending(error: BaseException) -> Ending:
    """Return the ending of a process that raised an error."""
    return Ending(
        error.exit_code if isinstance(error, RecipeError | TrainingError) else ExitCode.FAILED,
        error=type(error).__name__,
        message=str(error) or "no message",
        is_consequence=is_lost_peer(error),
    )


def get_log_path(folder: Path, rank: int) -> Path:
    """Return the path of a rank's log, or the folder of all logs for rank -1."""
    return folder / LOGS / f"rank{rank}.log" if rank >= 0 else folder / LOGS


def write_ending(path: Path, ending: Ending) -> None:
    """Write an ending atomically.

    A failure is reported, not raised: a full disk must not hide the error that ended the process.
    """
    try:
        path.parent.mkdir(exist_ok=True)
        atomic.write_text(path, json.dumps(asdict(ending)))
    except OSError as error:
        sys.stderr.write(f"cannot write {path}: {error.strerror}\n")


def read_ending(path: Path) -> Ending | None:
    """Return an ending from a file; None if the file is missing or damaged."""
    try:
        return Ending(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def is_lost_peer(error: BaseException) -> bool:
    """Return whether an error means that torch lost another rank.

    This depends on the place where it was raised, not on its message.
    """
    if any(error_class.__name__ == "DistError" for error_class in type(error).__mro__):
        return True
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    module = frames[-1].f_globals.get("__name__", "") if frames else ""
    return type(error) is RuntimeError and module.startswith(_COMMUNICATION)


def find_first_failure(candidates: Iterable[Ending]) -> Ending | None:
    """Return the failure to report, or None if no ending is a failure.

    Consequences of other failures come last. Among the others, rejections come first, the lowest
    rank first; then the earliest failure.
    """

    def order(ending: Ending) -> tuple[bool, float, float]:
        rank = ending.rank if ending.code in REJECTED_CODES else inf
        return ending.is_consequence, rank, ending.time

    return min((ending for ending in candidates if ending.has_failed), key=order, default=None)
