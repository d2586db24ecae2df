"""The cores of this machine."""

import os
from pathlib import Path

#: Where Linux says what its cores can do.
CPUINFO = Path("/proc/cpuinfo")


def cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def emulates(dtype: str) -> bool:
    """Return whether the cores lack instructions for bf16 or fp16; False if that is not known."""
    # x86: avx512_bf16, amx_bf16, avx512_fp16; ARM: bf16, asimdhp
    names = {"bf16": ("bf16",), "fp16": ("fp16", "asimdhp")}.get(dtype, ())
    try:
        known = CPUINFO.read_text()
    except OSError:
        return False
    return bool(names) and not any(name in known for name in names)
