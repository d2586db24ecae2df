"""The GPUs that torch can use on this machine, or the reason why it cannot use any."""

import ctypes
import os
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from resnet_recipes.base.errors import Command, Hint, Problem, Statement, list_advice
from resnet_recipes.doctor import Finding

DRIVER = Path("/proc/driver/nvidia/version")
PYTORCH = Hint(
    "reinstall torch and torchvision for your CUDA version: https://pytorch.org/get-started/locally"
)


def is_usable() -> bool:
    """Return whether torch can use a GPU; `find_unused_gpu` replaces the torch warning."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "CUDA initialization")
        return torch.cuda.is_available()


def find_unused_gpu() -> Finding | None:
    """Return why torch cannot use the GPU that this machine seems to have, if so."""
    if is_usable() or not (sign := find_sign_of_gpu()):
        return None
    reason = _explain_unusable_gpu()
    return reason._replace(what=f"this machine seems to have a GPU ({sign}), but {reason.what}")


def make_missing_gpu_problem(key: str, value: object, fix: str) -> Problem:
    """Return the problem of a machine without a GPU for torch, with the reason if it has one."""
    finding = find_unused_gpu()
    clause = Statement(finding.what if finding else "torch sees no GPU on this machine")
    return Problem(key, value, clause, (*list_advice(finding.fix), fix) if finding else fix)


def find_untested_machine() -> Finding | None:
    """Return a warning if this program was never tested on this kind of machine."""
    import torch

    if sys.platform == "darwin":
        what = "macOS is untested, and Apple GPUs (mps) are not supported"
        return Finding("warn", what)
    if torch.version.hip and is_usable():
        what = "AMD GPUs (ROCm) are untested"
        return Finding("warn", what, "launch.device=cpu")
    return None


def _explain_unusable_gpu() -> Finding:
    """Return why torch cannot use this machine's GPU."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    driver = _read_driver_version()
    built = f"torch {torch.__version__} is built for"
    if torch.version.cuda is None:
        return Finding("fix", f"{built} {'ROCm' if torch.version.hip else 'CPUs'}", PYTORCH)
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):  # Slurm sets the last
        what = f"CUDA_VISIBLE_DEVICES={visible!r} hides it"
        return Finding("fix", what, Command("unset CUDA_VISIBLE_DEVICES"))
    if not driver:
        fix = Hint("start the container with --gpus all")
        return Finding("fix", "the driver's libcuda.so.1 is missing", fix)
    if driver[0] < int(torch.version.cuda.partition(".")[0]):
        newest = f"{driver[0]}.{driver[1]}"
        what = f"its driver is too old: it supports CUDA {newest}, and {built} {torch.version.cuda}"
        return Finding("fix", what, Hint(f"update the driver, or {PYTORCH}"))
    command = Command("python -c 'import torch; torch.cuda.init()'")
    return Finding("fix", "torch cannot use it", (command, Hint("this prints the reason")))


def _read_driver_version() -> tuple[int, int] | None:
    """Return the newest CUDA version that the driver supports; None without a driver."""
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return version.value // 1000, version.value % 1000 // 10


def find_sign_of_gpu() -> str:
    """Return the evidence that this machine has an NVIDIA GPU; "" without evidence."""
    if DRIVER.exists():
        return "the NVIDIA driver is loaded"
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return "/dev/nvidia*"
    return "nvidia-smi is installed" if shutil.which("nvidia-smi") else ""


#: Queries the driver in a separate process: initializing CUDA here would occupy memory on every
#: GPU until the run ends.
_DRIVER_QUERY = """
import ctypes
cuda, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
device, major = ctypes.c_int(), ctypes.c_int()
name, memory = ctypes.create_string_buffer(100), ctypes.c_size_t()
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0:
    print(number.value)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetName(name, 100, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)      # compute capability
    print(name.value.decode(), major.value, sep="\\n", flush=True)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    print(memory.value)
"""


@dataclass(frozen=True)
class Gpus:
    """The GPUs that a process can use, and the first of them."""

    count: int = 0
    name: str = ""  # "" or 0: unknown
    dtype: str = ""  # the meaning of `precision.dtype=auto`
    memory_bytes: int = 0


@cache
def find_gpus() -> Gpus:
    """Return the GPUs of this machine. The first call takes a few tenths of a second.

    torch counts physical GPUs (NVML). In MIG mode, CUDA shows a single slice, or the slices in
    CUDA_VISIBLE_DEVICES.
    """
    import torch

    if not is_usable():  # NVML also counts GPUs whose driver is too old for this torch
        return Gpus()
    lines = _query_driver() or [str(torch.cuda.device_count())]
    parsers: tuple[Any, ...] = (int, str, lambda major: "bf16" if int(major) >= 8 else "fp16", int)
    return Gpus(*(parse(text) for parse, text in zip(parsers, lines, strict=False)))


def has_nvml() -> bool:
    """Return whether the NVIDIA management library works, which some containers lack.

    torch 2.15 queries it to place expandable segments, and crashes without it.
    """
    try:
        return ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2() == 0
    except (OSError, AttributeError):
        return False


def _query_driver() -> list[str]:
    """Return up to four lines: number of GPUs, name, major compute capability, bytes."""
    import torch

    if not torch.version.cuda:  # ROCm has no libcuda
        return []
    try:
        result = subprocess.run(
            [sys.executable, "-c", _DRIVER_QUERY],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return result.stdout.splitlines()
