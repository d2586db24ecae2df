"""Run commands whose output golden files contain; for test_screens and test_error_messages.

They also run them outside of pytest, to write these files, so these functions are not fixtures.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from resnet_recipes import cli


@contextmanager
def work_in(folder: Path, columns: int = 80) -> Iterator[None]:
    """Work in a folder, on two cores and for a terminal of this width; restore all afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setenv("TERM", "xterm")
        patch.setenv("XDG_CACHE_HOME", f"{folder}/cache")
        patch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
        patch.chdir(folder)
        yield


def run_line(line: str) -> tuple[int, str, str]:
    """Run a command; return its exit code, output and errors."""
    out = StringIO()
    err = StringIO()
    program, *arguments = shlex.split(line)
    command = {"resnet-train": cli.train, "resnet-recipes": cli.main}[program]
    with redirect_stdout(out), redirect_stderr(err):
        code = command(arguments)
    return code, out.getvalue(), err.getvalue()
