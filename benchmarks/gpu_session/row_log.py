"""A log of measured rows: each row is printed and appended to a file when it is measured."""

import json
import os
from pathlib import Path


class RowLog:
    """Appends rows to a file of JSON lines, so that nothing is lost if the session is cut off."""

    def __init__(self, path: Path, call: str):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()  # fail early if the file is not writable
        self.measured: list[dict] = []
        self.faults = 0
        self._path, self._call, self._part = path, call, ""

    def add(self, part: str, row: dict) -> None:
        """Show a row and write it to the disk."""
        row = {"call": self._call, "part": part} | row
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if part != self._part:
            print(f"\n{part}", flush=True)
            self._part = part
        print(f"  {format_row(row)}", flush=True)
        self.measured.append(row)
        self.faults += "fault" in row


def format_row(row: dict) -> str:
    """Return a row as a line: case, measurement, unit, prediction, note."""
    if "fault" in row:
        return f"FAULT {row['case']}: {row['fault']}"
    if "value" not in row:
        return f"{row['case']}: {row.get('note', '')}"
    text = f"{row['case']:<48}{_format_number(row['value']):>10} {row['unit']}"
    if row.get("predicted"):
        text += f"  predicted {_format_number(row['predicted'])}"
        text += f", {row['value'] / row['predicted']:.2f} of it"
    return text + (f"  ({row['note']})" if row.get("note") else "")


def _format_number(value: float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.0f}" if abs(value) >= 1e4 or value == int(value) else f"{value:,.4g}"
