"""Find out how much memory this process may still use."""

from pathlib import Path

_NO_LIMIT = 1 << 62


def available_memory() -> int:
    """Return the bytes available on the machine or within the container's limit, if that is less.

    Page cache counts as available.
    """
    return min(_machine(Path("/proc/meminfo")), _container(Path("/sys/fs/cgroup")))


def _machine(meminfo: Path) -> int:
    """Read MemAvailable, which counts the page cache as free.

    Unlimited if there is no such file.
    """
    if not meminfo.exists():
        return _NO_LIMIT
    rows = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return int(rows["MemAvailable"].split()[0]) * 1024


def _container(cgroup: Path) -> int:
    """Read a version 2 control group: its limit minus used memory that cannot be reclaimed."""
    limit, used = cgroup / "memory.max", cgroup / "memory.current"
    if not limit.exists() or limit.read_text().strip() == "max":
        return _NO_LIMIT
    rows = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    return max(0, int(limit.read_text()) - int(used.read_text()) + int(rows.get("file", 0)))
