"""The cores of this machine, and its memory."""

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


NO_LIMIT = 1 << 62


def available_memory() -> int:
    """Return the bytes available on the machine or within the container's limit, if that is less.

    Page cache counts as available.
    """
    lines = Path("/proc/meminfo").read_text().splitlines()
    rows = dict(line.split(":", 1) for line in lines)
    free = int(rows["MemAvailable"].split()[0]) * 1024
    return min(free, container_memory(Path("/sys/fs/cgroup")))


def container_memory(cgroup: Path) -> int:
    """Read a version 2 control group: its limit minus used memory that cannot be reclaimed."""
    limit, used = cgroup / "memory.max", cgroup / "memory.current"
    if not limit.exists() or limit.read_text().strip() == "max":
        return NO_LIMIT
    rows = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    return max(0, int(limit.read_text()) - int(used.read_text()) + int(rows.get("file", 0)))
