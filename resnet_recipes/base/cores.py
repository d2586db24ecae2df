"""The cores of this machine, and its memory."""

import os
from pathlib import Path

#: Where Linux says what its cores can do.
CPUINFO = Path("/proc/cpuinfo")


#: Where Linux says whether cores run two threads each.
SMT = Path("/sys/devices/system/cpu/smt/active")


def cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def speedup(threads: int) -> float:
    """Return how many times the work of one core is done by threads on this machine.

    The second thread of a core is assumed to add a fifth.
    """
    threads = min(threads, cores())
    whole = cores() / 2 if SMT.exists() and SMT.read_text().strip() == "1" else cores()
    return threads if threads < whole else whole + 0.2 * (threads - whole)


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


#: Names by version of control groups: limit, use, and in memory.stat the file cache and the shared
#: memory that counts as such.
_MEMORY = {
    "": ("memory.max", "memory.current", "file", "shmem"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "total_shmem"),
}


def available_memory() -> int:
    """Return the bytes available on the machine, or to a container or job that is allowed less.

    Page cache counts as available.
    """
    lines = Path("/proc/meminfo").read_text().splitlines()
    rows = dict(line.split(":", 1) for line in lines)
    free = int(rows["MemAvailable"].split()[0]) * 1024
    return min(free, group_memory(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup").read_text()))


def group_memory(root: Path, groups: str) -> int:
    """Return what the control groups of a process, and those around them, leave it.

    `groups` is its list: lines of number, controllers and path.
    """
    found = [NO_LIMIT]
    for line in groups.splitlines():
        _, kinds, place = line.split(":", 2)
        for kind in _MEMORY.keys() & {*kinds.split(",")}:
            group = root / kind / place.lstrip("/")
            found += (
                _left(folder, *_MEMORY[kind])
                for folder in (group, *group.parents)
                if folder.is_relative_to(root / kind)
            )
    return min(found)


def _left(group: Path, limit: str, used: str, cached: str, shared: str) -> int:
    """Return the limit of a control group minus the used memory that cannot be reclaimed."""
    if not (group / limit).exists() or (most := (group / limit).read_text().strip()) == "max":
        return NO_LIMIT
    rows = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    reclaimable = int(rows.get(cached, 0)) - int(rows.get(shared, 0))
    return max(0, int(most) - int((group / used).read_text()) + reclaimable)
