"""Try fused operations in a process of their own, once for each machine.

A kernel that reads out of bounds ends its process's use of the GPU, so no run tries one itself.
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
from resnet_recipes.base.paths import cache_folder

SECONDS = 600  # that one process may take: compiling takes 30 on a slow core
SELFTEST = "resnet_recipes.ops.selftest"
DRIVERS = "/proc/driver/nvidia/version", "/sys/module/amdgpu/version"

#: For each operation, by its name: why it cannot be used, or an empty string.
Verdicts = dict[str, str]


def recall(operations: Sequence[str], device: torch.device, dtype: torch.dtype) -> Verdicts:
    """Return the verdicts that this machine keeps in the user's cache, or else find and keep them.

    The first of several ranks tries the operations, and the others wait for it. A failure is
    believed only by those who waited: before the next run a compiler may have been installed.
    """
    began = time.time()
    path = cache_folder() / "kernels" / f"{_key(device, dtype)}.json"
    try:
        with _locked(path.with_suffix(".lock")):
            if kept := _kept(path, operations, began):
                return kept
            found = verdicts(operations, device, dtype, device)
            with suppress(OSError):  # a full disk: the next run tries them again
                atomic.write_text(path, json.dumps({"verdicts": found, "when": time.time()}))
            return found
    except OSError:  # nothing can be kept there
        return verdicts(operations, device, dtype, device)


def verdicts(
    operations: Sequence[str], device: torch.device, dtype: torch.dtype, reference: torch.device
) -> Verdicts:
    """Compare each operation with plain torch on `reference`, and return the verdicts.

    The first failure ends a process, which may have lost the GPU; another one tries the rest.
    """
    found: Verdicts = {}
    while left := [name for name in operations if name not in found]:
        found |= _told(left, [str(device), str(dtype).removeprefix("torch."), str(reference)])
    return found


def _told(operations: list[str], where: list[str]) -> Verdicts:
    """Return the verdicts of one process, on one operation at least."""
    command = [sys.executable, "-m", SELFTEST, *where, *operations]
    with tempfile.TemporaryFile("w+") as lines, tempfile.TemporaryFile("w+") as complaints:
        try:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=lines, stderr=complaints, timeout=SECONDS
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        lines.seek(0)
        complaints.seek(0)
        told = dict(map(json.loads, lines.read().splitlines()))
        last = next(filter(None, map(str.strip, reversed(complaints.read().splitlines()))), "")
    failed = any(told.values())
    if failed or len(told) == len(operations):
        return told
    return told | {operations[len(told)]: _ending(code, last)}


def _ending(code: int | None, last: str) -> str:
    """Return how a process ended that did not tell: by a signal, or with a last line."""
    if code is None:
        return f"trying it takes more than {SECONDS} seconds"
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}: {last}"
    return f"the process that tried it ended with {how}"


def _kept(path: Path, operations: Sequence[str], began: float) -> Verdicts | None:
    """Return the verdicts in a file, unless it is absent or damaged, or names an old failure.

    One from the future is old, too: the clock was wrong when it was written.
    """
    try:
        kept = json.loads(path.read_bytes())
        found = {name: str(kept["verdicts"][name]) for name in operations}
        is_new = began <= kept["when"] <= time.time()
        return None if any(found.values()) and not is_new else found
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file inside the context, and wait for it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _key(device: torch.device, dtype: torch.dtype) -> str:
    """Return a digest of all that a verdict depends on: machine, GPU, driver, versions, sources."""
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
