"""CPU cores and memory of this machine."""

import os
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

#: Linux file that shows whether each core runs two threads.
SMT = Path("/sys/devices/system/cpu/smt/active")

THREADS_VARIABLE = "OMP_NUM_THREADS"


def count_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_threads(ranks: int) -> int:
    """Return the threads of each of `ranks` processes: the user's setting, or its cores.

    Only the first level counts in a setting such as "4,2". 0 and other text count as unset.
    """
    setting = os.environ.get(THREADS_VARIABLE, "").partition(",")[0]
    is_set = setting.isdecimal() and int(setting) > 0
    return int(setting) if is_set else max(1, count_cores() // ranks)


def count_training_cores(ranks: int) -> int:
    """Return the number of cores that the threads of `ranks` processes can use."""
    return min(count_cores(), ranks * count_threads(ranks))


def estimate_speedup(threads: int) -> float:
    """Return the speedup of `threads` over one core on this machine.

    Assumes that the second thread of a core adds 20%.
    """
    cores = count_cores()
    has_two_threads = SMT.exists() and SMT.read_text().strip() == "1"
    threads = min(threads, cores)
    physical = cores / (1 + has_two_threads)
    return threads if threads < physical else physical + 0.2 * (threads - physical)


def is_emulated(dtype: str) -> bool:
    """Return whether the cores lack instructions for bf16 or fp16; False if unknown."""
    # x86: avx512_bf16, amx_bf16, avx512_fp16; ARM: bf16, asimdhp
    names = {"bf16": ("bf16",), "fp16": ("fp16", "asimdhp")}.get(dtype, ())
    try:
        features = CPUINFO.read_text()
    except OSError:
        return False
    return bool(names) and not any(name in features for name in names)


NO_LIMIT = 1 << 62  # bytes, for a cgroup without a memory limit


#: Per cgroup version: the files with the limit and the usage, and the memory.stat entries for the
#: file cache and for the shared memory that is counted in it.
_MEMORY = {
    "": ("memory.max", "memory.current", "file", "shmem"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache", "total_shmem"),
}


def get_available_memory() -> int:
    """Return the bytes available on the machine, or to a container or job with a lower limit.

    Page cache counts as available.
    """
    lines = Path("/proc/meminfo").read_text().splitlines()
    rows = dict(line.split(":", 1) for line in lines)
    groups = Path("/proc/self/cgroup").read_text()
    free = int(rows["MemAvailable"].split()[0]) * 1024
    return min(free, get_group_memory(Path("/sys/fs/cgroup"), groups))


def get_group_memory(root: Path, groups: str) -> int:
    """Return the bytes of memory that the cgroups of a process and their parents leave available.

    Returns NO_LIMIT if none of them has a limit.

    `groups` has the format of /proc/self/cgroup: lines of number, controllers and path.
    """
    limits = [NO_LIMIT]
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        for name in _MEMORY.keys() & {*controllers.split(",")}:
            group = root / name / path.lstrip("/")
            limits += (
                _get_available(folder, *_MEMORY[name])
                for folder in (group, *group.parents)
                if folder.is_relative_to(root / name)
            )
    return min(limits)


def _get_available(
    group: Path, limit_file: str, usage_file: str, cache_entry: str, shared_entry: str
) -> int:
    """Return the limit of a cgroup minus its memory that cannot be reclaimed."""
    path = group / limit_file
    if not path.exists() or (limit := path.read_text().strip()) == "max":
        return NO_LIMIT
    rows = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    reclaimable = int(rows.get(cache_entry, 0)) - int(rows.get(shared_entry, 0))
    return max(0, int(limit) - int((group / usage_file).read_text()) + reclaimable)
