"""A table of runs as a CSV file; each run appends its row."""

import csv
import sys
from pathlib import Path


def read_finished_rows(path: Path, row: dict[str, str]) -> list[dict[str, str]]:
    """Return the rows of a table, with only the columns of `row`."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [{name: cells[name] for name in row} for cells in csv.DictReader(file)]


def append_row(path: Path, row: dict[str, str]) -> None:
    """Append a row to a table; the first row also writes the header."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row)
        if is_new:
            writer.writeheader()
        writer.writerow(row)
    print(row, file=sys.stderr, flush=True)
