"""The wish to stop a run: a signal, or the end of the time it was given."""

import os
import signal
import time
from types import FrameType

from resnet_recipes.errors import ExitCode

#: The same wish may arrive twice at once: from Slurm to every process, and through the launcher. Later, a second signal means: now.
_SAME_WISH = 2.0

_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}


class Interruption:
    """Tells the loop when to save and stop, and with which exit code. One per process, made in its main thread."""

    def __init__(self) -> None:
        self._code = 0
        self._reason = ""
        self._first = 0.0                   # when the first signal came
        self._max_wall = ""
        self._deadline = float("inf")

    def limit(self, max_wall: str, started: float) -> None:
        """Stop a little before `max_wall` ("3.5h"; "" is no limit) has passed since `started`, a reading of time.monotonic()."""
        if max_wall:
            seconds = float(max_wall[:-1]) * _SECONDS[max_wall[-1]]
            self._max_wall, self._deadline = max_wall, started + seconds - min(120.0, 0.05 * seconds)

    def install(self) -> None:
        """Take over SIGTERM, SIGINT, SIGUSR1 and SIGHUP in this process; its children have to ignore them."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(number, self._handle)

    @property
    def requested(self) -> bool:
        """Tell whether this process has been asked to stop; cheap enough for every step."""
        if not self._code and time.monotonic() >= self._deadline:
            self.request(f"the end of launch.max_wall={self._max_wall} is near")
        return self._code != 0

    @property
    def reason(self) -> str:
        """Return why, in a few words; empty if nobody asked this process itself."""
        return self._reason

    @property
    def exit_code(self) -> int:
        """Return 130 after Ctrl-C; 75 after any other request, and where only another rank was asked."""
        return self._code or ExitCode.PREEMPTED

    def request(self, reason: str, code: int = ExitCode.PREEMPTED) -> None:
        """Ask to stop; the first request counts."""
        if not self._code:
            self._code, self._reason = code, reason

    def _handle(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self._first and now - self._first > _SAME_WISH:
            os._exit(128 + number)
        self._first = self._first or now
        self.request(signal.Signals(number).name, ExitCode.CANCELLED if number == signal.SIGINT else ExitCode.PREEMPTED)
