"""Check whether this machine has enough memory, open files, cores and disk for a run."""

import resource
import shutil
from pathlib import Path

import torch

from resnet_recipes.base.cores import count_cores, get_available_memory
from resnet_recipes.base.errors import Command, Hint
from resnet_recipes.base.paths import find_existing_parent
from resnet_recipes.base.text import format_bytes, format_count
from resnet_recipes.data.root import CONVERT_HINT
from resnet_recipes.doctor import Finding

_MIN_OPEN_FILES = 4096
_MIN_SHARED_MEMORY = 1 << 30  # bytes of /dev/shm; NCCL uses it between GPUs
_MIN_CORES = 8  # cores per GPU; with fewer, decoding JPEGs is slower than a modern GPU
_MIN_FREE_DISK = 5 << 30  # bytes: a few checkpoints of 0.4 GB, and logs


def check_run(root: Path | None = None) -> list[Finding]:
    """Check open files, cores, the disk of ./runs, and the memory for the data in `root`."""
    gpus = torch.cuda.device_count()
    findings = [_check_files(), _check_cores(gpus), _check_disk(), _check_memory(root)]
    if gpus > 1:
        findings.append(_check_shared_memory(Path("/dev/shm")))
    return findings


def _check_memory(root: Path | None) -> Finding:
    """Compare free memory with the .beton files in `root`, which the page cache should hold."""
    betons = root.glob("*.beton") if root else ()
    size = sum(path.stat().st_size for path in betons)
    free = get_available_memory()
    needed = format_bytes(size)
    available = format_bytes(free)
    if not size:
        return Finding("ok", f"free memory: {available}")
    if size < 0.9 * free:
        return Finding("ok", f"the .beton files ({needed}) fit in the free memory ({available})")
    why = "or convert with write_mode=jpg or a smaller max_resolution"
    fix = "data.order=quasi_random", Hint(why)
    return Finding(
        "warn", f"the .beton files ({needed}) do not fit in the free memory ({available})", fix
    )


def _check_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _MIN_OPEN_FILES:
        limit = _MIN_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MIN_OPEN_FILES)
        what = f"a process may open {soft} files, too few for many loader workers"
        return Finding("warn", what, Command(f"ulimit -n {limit}"))
    return Finding("ok", f"a process may open {soft} files")


def _check_shared_memory(folder: Path) -> Finding:
    """Check /dev/shm, which NCCL uses and the loaders do not."""
    size = shutil.disk_usage(folder).total if folder.exists() else 0
    if size < _MIN_SHARED_MEMORY:
        what = f"{folder} has {format_bytes(size)}; several GPUs may need more"
        return Finding("warn", what, Hint("docker run --shm-size=8g"))
    return Finding("ok", f"{folder} has {format_bytes(size)}")


def _check_cores(gpus: int) -> Finding:
    count = count_cores()
    if gpus and count < _MIN_CORES * gpus:
        fix = CONVERT_HINT, Hint("this makes decoding cheaper; otherwise use fewer GPUs")
        return Finding(
            "warn",
            f"{count} cores for {gpus} GPUs: with fewer than {_MIN_CORES} each, they may wait",
            fix,
        )
    return Finding("ok", format_count(count, "core") + (f" for {gpus} GPUs" if gpus else ""))


def _check_disk() -> Finding:
    parent = find_existing_parent(Path("runs"))
    free = shutil.disk_usage(parent).free
    if free < _MIN_FREE_DISK:
        what = f"{parent} has {format_bytes(free)} free, too little for checkpoints"
        return Finding("fix", what, Hint("free some space, or change run.root"))
    return Finding("ok", f"{parent} has {format_bytes(free)} free")
