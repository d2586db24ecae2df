"""The GPUs of this machine, as CUDA shows them."""

import ctypes
import subprocess
import sys
from functools import cache

from resnet_recipes.doctor.unused import is_usable

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
    physical = torch.cuda.device_count() if is_usable() else 0
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

    if not is_usable() or not torch.version.cuda:  # ROCm has no libcuda
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
