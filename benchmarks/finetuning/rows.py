"""A table of runs as a CSV file, to which each run adds its row."""

import csv
import resource
import sys
from pathlib import Path


def cpu_seconds() -> float:
    """Return the processor time of this process and of those that it has ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(one.ru_utime + one.ru_stime for one in used)


def finished(path: Path, row: dict[str, str]) -> list[dict[str, str]]:
    """Return the rows of a table, with the columns of `row` alone."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [{name: found[name] for name in row} for found in csv.DictReader(file)]


def append(path: Path, row: dict[str, str]) -> None:
    """Add a row to a table, which has a header from its first row."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row)
        if is_new:
            writer.writeheader()
        writer.writerow(row)
    print(row, file=sys.stderr, flush=True)
