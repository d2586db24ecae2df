"""The GPUs of this machine, as CUDA shows them."""

import ctypes
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

#: Asks the driver in a separate process: initialising CUDA here would hold memory on every GPU
#: until the run ends.
_QUESTION = """
import ctypes
cuda, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
device, major = ctypes.c_int(), ctypes.c_int()
name, memory = ctypes.create_string_buffer(100), ctypes.c_size_t()
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0:
    print(number.value)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetName(name, 100, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)      # of the compute capability
    print(name.value.decode(), major.value, sep="\\n", flush=True)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    print(memory.value)
"""


def count() -> int:
    """Return how many GPUs a process can use. Takes a few tenths of a second if there are any.

    torch counts physical GPUs (NVML). In MIG mode CUDA shows one slice of them all, or those of
    CUDA_VISIBLE_DEVICES.
    """
    import torch

    # NVML counts GPUs that an old driver keeps from this torch, too
    physical = torch.cuda.device_count() if torch.cuda.is_available() else 0
    answer = _answer()
    return int(answer[0]) if answer else physical


def first() -> tuple[str, str]:
    """Return the name of the first GPU and the type that `precision.dtype=auto` means on it.

    "" if unknown.
    """
    _, name, major, *_ = *_answer(), "", "", ""
    if not major:
        return name, ""
    return name, "bf16" if int(major) >= 8 else "fp16"


def memory() -> int:
    """Return the bytes of memory of the first GPU; 0 if unknown."""
    _, _, _, size, *_ = *_answer(), 0, 0, 0, 0
    return int(size)


def has_nvml() -> bool:
    """Return whether NVIDIA's management library works, as it may not in a container.

    Torch asks it where to place expandable segments, and crashes at the first one if there is none
    (torch 2.15).
    """
    try:
        return ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2() == 0
    except (OSError, AttributeError):
        return False


@cache
def _answer() -> list[str]:
    """Return the driver's answer: how many GPUs.

    The first one's name, major compute capability, bytes; or nothing.
    """
    import torch

    if not torch.cuda.is_available() or not torch.version.cuda:  # ROCm has no libcuda
        return []
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _QUESTION],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return asked.stdout.splitlines()


def unused() -> str:
    """Return a warning if this machine seems to have a GPU and torch sees none.

    Else an empty string.
    """
    import torch

    if torch.cuda.is_available() or not (sign := _sign_of_a_gpu()):
        return ""
    visible, driver = os.environ.get("CUDA_VISIBLE_DEVICES"), _driver()
    if torch.version.cuda is None:
        built = "ROCm" if torch.version.hip else "CPUs"
        why = (
            f"torch {torch.__version__} is built for {built}: install a CUDA build "
            "(pytorch.org/get-started)"
        )
    elif visible is not None and visible.strip() in ("", "-1"):
        why = f"CUDA_VISIBLE_DEVICES={visible!r} hides it: unset CUDA_VISIBLE_DEVICES"
    elif not driver:
        why = (
            "the driver's libcuda.so.1 is not found: a container has to be started with --gpus all"
        )
    elif driver[0] < int(torch.version.cuda.partition(".")[0]):
        why = (
            f"the driver is too old: it supports CUDA {driver[0]}.{driver[1]}, and this torch is "
            f"built for {torch.version.cuda}; update the driver, or install a torch for an older "
            "CUDA (pytorch.org/get-started)"
        )
    else:
        why = "python -c 'import torch; torch.cuda.init()' prints the reason"
    return f"NO GPU IS USED: this machine seems to have one ({sign}), but torch sees none; {why}"


def untried() -> str:
    """Return a warning if nobody has run this program on such a machine, else an empty string."""
    import torch

    if sys.platform == "darwin":
        return "UNTRIED: nobody has run this program on macOS; a Mac's GPU (mps) cannot be used"
    if torch.version.hip and torch.cuda.is_available():
        return "UNTRIED: nobody has run this program on AMD's GPUs (ROCm); launch.device=cpu"
    return ""


def _driver() -> tuple[int, int] | None:
    """Return the newest CUDA version that the driver supports; None without a driver."""
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return version.value // 1000, version.value % 1000 // 10


def _sign_of_a_gpu() -> str:
    """Return what suggests that this machine has an NVIDIA GPU; empty if nothing does."""
    if Path("/proc/driver/nvidia/version").exists():
        return "the NVIDIA driver is loaded"
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return "/dev/nvidia*"
    return "nvidia-smi is installed" if shutil.which("nvidia-smi") else ""
