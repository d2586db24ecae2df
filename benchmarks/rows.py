"""A CSV file with a row for each finished run, which is not run again."""

import csv
import sys
from pathlib import Path


def is_finished(path: Path, case: dict[str, str]) -> bool:
    """Return whether a file has a row with these cells."""
    if not path.exists():
        return False
    with path.open(newline="") as file:
        return any(case.items() <= row.items() for row in csv.DictReader(file))


def append_row(path: Path, row: dict[str, str]) -> None:
    """Append a row to a file, and print it; the first row also writes the header."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)
    print(row, file=sys.stderr, flush=True)
