"""Try fused operations in a separate process, once per machine.

A kernel that reads out of bounds breaks the GPU context of its process, so a run never tries one
itself.
"""

import fcntl
import hashlib
import json
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from resnet_recipes.base import atomic
from resnet_recipes.base.paths import get_cache_folder

MAX_TRIAL_SECONDS = 600  # limit for one process; compiling takes 30 s on a slow core
SELFTEST = "resnet_recipes.ops.selftest"
DRIVERS = "/proc/driver/nvidia/version", "/sys/module/amdgpu/version"

#: Why each operation cannot be used, by name; an empty string if it can.
Verdicts = dict[str, str]


def get_verdicts(operations: Sequence[str], device: torch.device, dtype: torch.dtype) -> Verdicts:
    """Return the cached verdicts of this user; without any, try the operations and store them.

    The first of several ranks tries the operations, and the others wait for it. A failure is used
    only by ranks that waited for it: a later run tries again, in case a compiler was installed.
    """
    start = time.time()
    path = get_cache_folder() / "kernels" / f"{_compute_key(device, dtype)}.json"
    try:
        with _lock(path.with_suffix(".lock")):
            if stored := _read_verdicts(path, operations, start):
                return stored
            verdicts = run_trials(operations, device, dtype, device)
            with suppress(OSError):  # on a full disk the next run tries them again
                atomic.write_text(path, json.dumps({"verdicts": verdicts, "when": time.time()}))
            return verdicts
    except OSError:  # the lock cannot be created, so nothing can be cached
        return run_trials(operations, device, dtype, device)


def run_trials(
    operations: Sequence[str], device: torch.device, dtype: torch.dtype, reference: torch.device
) -> Verdicts:
    """Compare each operation with plain torch on `reference` and return the verdicts.

    A process ends at its first failure, because its GPU context may be broken; a new one continues.
    """
    verdicts: Verdicts = {}
    where = [str(device), str(dtype).removeprefix("torch."), str(reference)]
    while left := [name for name in operations if name not in verdicts]:
        verdicts |= _run_process(left, where)
    return verdicts


def _run_process(operations: list[str], where: list[str]) -> Verdicts:
    """Return the verdicts of one process, for at least one operation."""
    command = [sys.executable, "-m", SELFTEST, *where, *operations]
    with tempfile.TemporaryFile("w+") as lines, tempfile.TemporaryFile("w+") as complaints:
        try:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=complaints,
                timeout=MAX_TRIAL_SECONDS,
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        lines.seek(0)
        complaints.seek(0)
        verdicts = dict(map(json.loads, lines.read().splitlines()))
        last = next(filter(None, map(str.strip, reversed(complaints.read().splitlines()))), "")
    if any(verdicts.values()) or len(verdicts) == len(operations):
        return verdicts
    return verdicts | {operations[len(verdicts)]: _describe_ending(code, last)}


def _describe_ending(code: int | None, last: str) -> str:
    """Describe how a process without a verdict ended: its signal, or its last line."""
    if code is None:
        return f"trying it takes more than {MAX_TRIAL_SECONDS} seconds"
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}: {last}"
    return f"the process that tried it ended with {how}"


def _read_verdicts(path: Path, operations: Sequence[str], start: float) -> Verdicts | None:
    """Return the verdicts in a file, unless it is absent or damaged, or has an old failure.

    A failure with a future date also counts as old: the clock was wrong when it was written.
    """
    try:
        record = json.loads(path.read_bytes())
        verdicts = {name: str(record["verdicts"][name]) for name in operations}
        is_new = start <= record["when"] <= time.time()
        return None if any(verdicts.values()) and not is_new else verdicts
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Wait for a lock file, and hold it inside the context.

    Raises OSError if the file cannot be created or locked.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compute_key(device: torch.device, dtype: torch.dtype) -> str:
    """Return a digest of what verdicts depend on: machine, GPU, driver, versions, sources."""
    try:
        from triton import __version__ as triton
    except ImportError:
        triton = "none"
    drivers = [Path(path) for path in DRIVERS]
    facts = (
        platform.node(),
        torch.cuda.get_device_name(device),
        [path.read_text() for path in drivers if path.exists()],
        (sys.version, torch.__version__, triton, str(dtype)),
    )
    digest = hashlib.sha256(repr(facts).encode())
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:24]
