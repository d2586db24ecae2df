"""The processes of the ranks on this machine, from their start to the last exit."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TextIO

from resnet_recipes.base.errors import STOPPED, ExitCode
from resnet_recipes.jobs.rank import die_with_parent

#: The line of a traceback that names the error.
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")

#: Exit codes of ranks that have not failed; None: it still runs.
_FINE = (None, ExitCode.DONE, *STOPPED)


class Ranks:
    """One process for each rank; each leads a process group, to which its loader workers belong."""

    def __init__(
        self, command: Sequence[str], environments: Sequence[Mapping[str, str]], log: TextIO
    ):
        """Start them; `log` gets what they print before they open logs of their own."""
        self._log = log
        self._killed: set[int] = set()  # by this launcher
        self._processes = [
            # a rank reads no input: stream 0 is the user's error stream
            subprocess.Popen(
                command,
                env=environment,
                start_new_session=True,
                stdin=_descriptor(sys.stderr, 2),
                stdout=_descriptor(sys.stdout, 1),
                stderr=log,
                preexec_fn=die_with_parent,
            )
            for environment in environments
        ]

    @property
    def running(self) -> list[int]:
        """The ranks whose processes still run."""
        return [rank for rank, process in enumerate(self._processes) if process.poll() is None]

    @property
    def any_failed(self) -> bool:
        """Whether a rank has failed, as its exit code says; the others have nothing to wait for."""
        return any(process.returncode not in _FINE for process in self._processes)

    @property
    def any_code(self) -> bool:
        """Whether a rank has ended with another code than 0."""
        return any(process.returncode for process in self._processes)

    def killed_from_outside(self) -> tuple[int, str] | None:
        """Return the first rank killed by a signal not sent from here, and the signal's name."""
        for rank, process in enumerate(self._processes):
            if (process.returncode or 0) < 0 and rank not in self._killed:
                return rank, signal.Signals(-process.returncode).name
        return None

    def wait(self, seconds: float) -> None:
        """Wait until a process has ended, but no longer than this."""
        with suppress(subprocess.TimeoutExpired):
            for rank in self.running[:1]:
                self._processes[rank].wait(seconds)

    def send(self, number: int) -> None:
        """Send a signal to the ranks that still run."""
        for rank in self.running:
            self._processes[rank].send_signal(number)

    def kill(self) -> None:
        """Kill the ranks that still run."""
        for rank in self.running:
            self._killed.add(rank)
            self._processes[rank].kill()

    def kill_leftovers(self) -> None:
        """Kill what ranks that are gone have left behind."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def last_error(self) -> str:
        """Return the last error that a rank wrote before it had a log."""
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        errors = [line for line in lines if _ERROR.match(line)]
        return (errors or lines or ["it ended without a message"])[-1]


def _descriptor(stream: TextIO, number: int) -> int:
    """Return a text stream's descriptor, or the process's own if it has none, as in a notebook."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return number
