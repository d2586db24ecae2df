"""Run one part of a call in a separate process, and yield its rows as they are measured."""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from calls import Part

ROOT = Path(__file__).parents[2]
POLL_SECONDS = 0.2  # seconds between checks for new rows


def run_part(part: Part, device: str, quick: bool) -> Iterator[dict]:
    """Yield a part's rows; the last row has its duration or its failure."""
    if part.seconds <= 0:
        yield {
            "case": "seconds",
            "fault": "skipped: earlier parts used up the call's time",
        }
        return
    command = [sys.executable, __file__, part.module, device, str(int(quick)), *part.arguments]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    start = time.monotonic()
    # output goes to files, not pipes: a child of a part may outlive it and keep its pipe open
    with tempfile.NamedTemporaryFile() as rows_file, tempfile.TemporaryFile("w+") as errors_file:
        process = subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": path},
            stdout=rows_file,
            stderr=errors_file,
            start_new_session=True,
        )
        code, text = None, ""
        try:
            with open(rows_file.name, encoding="utf-8", errors="replace") as reader:
                while code is None and time.monotonic() - start < part.seconds:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        code = process.wait(POLL_SECONDS)
                    *lines, text = (text + reader.read()).split("\n")
                    yield from map(_parse_row, lines)
        finally:
            _kill(process.pid)  # also kills children of the part
            process.wait()
        seconds = time.monotonic() - start
        errors_file.seek(0)
        log = errors_file.read()
    if code == 0:
        yield {"case": "seconds", "value": round(seconds, 1), "unit": "s"}
        return
    last = next(filter(None, map(str.strip, reversed(log.splitlines()))), "no message")
    fault = f"stopped after {seconds:.0f} s" if code is None else f"ended with {code}: {last}"
    yield {"case": "seconds", "fault": fault, "log": log[-4000:]}


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _parse_row(line: str) -> dict:
    """Return the row on a line; any other line is a note, such as a library warning."""
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    return row if isinstance(row, dict) else {"case": "note", "note": line.strip()}


def main() -> None:
    """Print the rows of a module, one JSON object per line: this process is a part."""
    import torch

    module, device_type, quick, *arguments = sys.argv[1:]
    device = torch.device(device_type, 0) if device_type == "cuda" else torch.device(device_type)
    if quick == "1":
        torch.set_num_threads(1)  # several threads would only wait for each other
    for row in importlib.import_module(module).measure_rows(device, quick == "1", *arguments):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
