"""The GPUs of this machine, as CUDA shows them."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

#: Asks the driver in a process of its own: initialising CUDA here would take memory on every GPU for as long as the run lasts.
_COUNT = """
import ctypes
cuda, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(number)) == 0:
    print(number.value)
"""


@cache
def count() -> int:
    """Return how many GPUs a process can use. Costs a few tenths of a second where there are any.

    torch counts physical GPUs (NVML); CUDA decides: it shows one slice of all GPUs in MIG mode, and CUDA_VISIBLE_DEVICES may name more.
    """
    import torch

    physical = torch.cuda.device_count()
    if not physical or not torch.version.cuda:          # ROCm has no libcuda
        return physical
    try:
        asked = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, timeout=60, check=False)
        return int(asked.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return physical


def unused() -> str:
    """Return a warning if this machine seems to have a GPU and torch sees none; else an empty string."""
    import torch

    if torch.cuda.is_available() or not (sign := _sign_of_a_gpu()):
        return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda is None and torch.version.hip is None:
        why = f"torch {torch.__version__} is built for CPUs: install a CUDA build (pytorch.org/get-started)"
    elif visible is not None and visible.strip() in ("", "-1"):
        why = f"CUDA_VISIBLE_DEVICES={visible!r} hides it: unset CUDA_VISIBLE_DEVICES"
    else:
        why = ("the driver may be too old for this torch, or a container started without --gpus all; "
               "python -c 'import torch; torch.cuda.init()' prints the reason")
    return f"NO GPU IS USED: this machine seems to have one ({sign}), but torch sees none; {why}"


def _sign_of_a_gpu() -> str:
    """Return what on this machine comes with an NVIDIA GPU; empty if there is nothing."""
    if Path("/proc/driver/nvidia/version").exists():
        return "the NVIDIA driver is loaded"
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return "/dev/nvidia*"
    return "nvidia-smi is installed" if shutil.which("nvidia-smi") else ""
