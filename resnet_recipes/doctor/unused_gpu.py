"""Find GPUs that torch cannot use, and machines that were never tested."""

import ctypes
import os
import sys

from resnet_recipes import cuda
from resnet_recipes.base.errors import Command, Hint, Problem, Statement, list_advice
from resnet_recipes.doctor import Finding

PYTORCH = Hint(
    "reinstall torch and torchvision for your CUDA version: https://pytorch.org/get-started/locally"
)


def find_unused_gpu() -> Finding | None:
    """Return why torch cannot use the GPU that this machine seems to have, if so."""
    if cuda.is_usable() or not (sign := cuda.find_sign_of_gpu()):
        return None
    reason = _explain_unusable_gpu()
    return reason._replace(what=f"this machine seems to have a GPU ({sign}), but {reason.what}")


def make_missing_gpu_problem(key: str, value: object, fix: str) -> Problem:
    """Return the problem that torch sees no GPU, with the reason if the machine has a GPU."""
    finding = find_unused_gpu()
    clause = Statement(finding.what if finding else "torch sees no GPU on this machine")
    return Problem(key, value, clause, (*list_advice(finding.fix), fix) if finding else fix)


def find_untested_machine() -> Finding | None:
    """Return a warning if this program was never tested on this kind of machine."""
    import torch

    if sys.platform == "darwin":
        what = "macOS is untested, and Apple GPUs (mps) are not supported"
        return Finding("warn", what)
    if torch.version.hip and cuda.is_usable():
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
