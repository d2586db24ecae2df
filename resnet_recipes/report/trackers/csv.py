"""A table in RUN/metrics.csv: one row per logged step or evaluation."""

import csv
from collections.abc import Mapping
from pathlib import Path

from resnet_recipes.base import atomic
from resnet_recipes.report.trackers.base import METRIC_NAMES

CSV_COLUMNS = (
    "step",
    "epoch",
    *(name for names in METRIC_NAMES.values() for name in names.values()),
)


class CsvTracker:
    """One row per point, all with the same columns.

    A resumed run drops the rows after its checkpoint.
    """

    def __init__(self, folder: Path):
        self._path = folder / "metrics.csv"

    def begin(self, settings: Mapping[str, object], step: int) -> None:
        rows = [",".join(CSV_COLUMNS)]
        if step and self._path.is_file():
            lines = self._path.read_text(encoding="utf-8").splitlines()[1:]
            rows += [
                line
                for line in lines
                if line.split(",")[0].isdecimal() and int(line.split(",")[0]) <= step
            ]
        atomic.write_text(self._path, "\n".join(rows) + "\n")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        with self._path.open("a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, CSV_COLUMNS, lineterminator="\n").writerow(
                {"step": step, **values}
            )

    def close(self, is_finished: bool) -> None:
        """Do nothing: every row is already in the file."""
