"""A GPU that this machine has and torch does not use, and machines that nobody has tried."""

import ctypes
import os
import shutil
import sys
import warnings
from pathlib import Path

from resnet_recipes.doctor import Finding

DRIVER = Path("/proc/driver/nvidia/version")
PYTORCH = (
    "reinstall torch and torchvision for your CUDA version: https://pytorch.org/get-started/locally"
)


def is_usable() -> bool:
    """Return whether torch can use a GPU; `unused` says why not, instead of torch's warning."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "CUDA initialization")
        return torch.cuda.is_available()


def unused() -> Finding | None:
    """Return why torch uses no GPU, if this machine seems to have one."""
    if is_usable() or not (sign := _sign_of_a_gpu()):
        return None
    why, fix = _reason()
    return Finding("fix", f"this machine seems to have a GPU ({sign}), but {why}", fix)


def untried() -> Finding | None:
    """Return that nobody has run this program on such a machine, if that is so."""
    import torch

    if sys.platform == "darwin":
        what = "nobody has run this program on macOS, and a Mac's GPU (mps) cannot be used"
        return Finding("warn", what)
    if torch.version.hip and is_usable():
        what = "nobody has run this program on AMD's GPUs (ROCm)"
        return Finding("warn", what, "launch.device=cpu")
    return None


def _reason() -> tuple[str, str]:
    """Return why torch cannot use this machine's GPU, and what to do."""
    import torch

    visible, driver = os.environ.get("CUDA_VISIBLE_DEVICES"), _driver()
    built = f"torch {torch.__version__} is built for"
    if torch.version.cuda is None:
        return f"{built} {'ROCm' if torch.version.hip else 'CPUs'}", PYTORCH
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):  # the last by Slurm
        return f"CUDA_VISIBLE_DEVICES={visible!r} hides it", "unset CUDA_VISIBLE_DEVICES"
    if not driver:
        fix = "a container has to be started with --gpus all"
        return "the driver's libcuda.so.1 is not found", fix
    if driver[0] < int(torch.version.cuda.partition(".")[0]):
        newest = f"{driver[0]}.{driver[1]}"
        why = f"its driver is too old: it supports CUDA {newest}, and {built} {torch.version.cuda}"
        return why, f"update the driver, or {PYTORCH}"
    return "torch cannot use it", "python -c 'import torch; torch.cuda.init()'  prints the reason"


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
    if DRIVER.exists():
        return "the NVIDIA driver is loaded"
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return "/dev/nvidia*"
    return "nvidia-smi is installed" if shutil.which("nvidia-smi") else ""
