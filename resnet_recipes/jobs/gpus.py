"""The GPUs of this machine, as CUDA shows them."""

import ctypes
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

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


@dataclass(frozen=True)
class Gpus:
    """The GPUs that a process can use, and the first of them."""

    count: int = 0
    name: str = ""  # "" and 0: not known
    dtype: str = ""  # what `precision.dtype=auto` means on it
    memory: int = 0  # bytes


@cache
def found() -> Gpus:
    """Return the GPUs of this machine. Takes a few tenths of a second if there are any, once.

    torch counts physical GPUs (NVML). In MIG mode CUDA shows one slice of them all, or those of
    CUDA_VISIBLE_DEVICES.
    """
    import torch

    if not is_usable():  # NVML counts GPUs that an old driver keeps from this torch, too
        return Gpus()
    told = _answer() or [str(torch.cuda.device_count())]
    kinds: tuple[Any, ...] = (int, str, lambda major: "bf16" if int(major) >= 8 else "fp16", int)
    return Gpus(*(kind(text) for kind, text in zip(kinds, told, strict=False)))


def has_nvml() -> bool:
    """Return whether NVIDIA's management library works, as it may not in a container.

    Torch asks it where to place expandable segments, and crashes at the first one if there is none
    (torch 2.15).
    """
    try:
        return ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2() == 0
    except (OSError, AttributeError):
        return False


def _answer() -> list[str]:
    """Return what the driver says: how many, name, major compute capability, bytes; or less."""
    import torch

    if not torch.version.cuda:  # ROCm has no libcuda
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
