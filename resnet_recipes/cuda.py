"""The GPUs that torch can use on this machine."""

import ctypes
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DRIVER = Path("/proc/driver/nvidia/version")


def is_usable() -> bool:
    """Return whether torch can use a GPU, without the warning of torch if it cannot."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "CUDA initialization")
        return torch.cuda.is_available()


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
class VisibleGpus:
    """The GPUs that a process can use, and the first of them."""

    count: int = 0
    name: str = ""  # "" or 0: unknown
    dtype: str = ""  # the meaning of `precision.dtype=auto`
    memory_bytes: int = 0


@cache
def find_gpus() -> VisibleGpus:
    """Return the GPUs of this machine. The first call takes a few tenths of a second.

    torch counts physical GPUs (NVML). In MIG mode, CUDA shows a single slice, or the slices in
    CUDA_VISIBLE_DEVICES.
    """
    import torch

    if not is_usable():  # NVML also counts GPUs whose driver is too old for this torch
        return VisibleGpus()
    lines = _query_driver() or [str(torch.cuda.device_count())]
    parsers: tuple[Any, ...] = (int, str, lambda major: "bf16" if int(major) >= 8 else "fp16", int)
    return VisibleGpus(*(parse(text) for parse, text in zip(parsers, lines, strict=False)))


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
