"""Requests to stop a run: a signal, or the end of its time limit."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from resnet_recipes.base.duration import parse_time
from resnet_recipes.base.errors import ExitCode
from resnet_recipes.base.processes import STOP_SIGNALS

#: Seconds during which Ctrl-C repeats the first signal, because the launcher forwards it. Slurm
#: sends SIGTERM several times, so only a later Ctrl-C means: stop now.
_SAME_REQUEST_SECONDS = 2.0


@contextmanager
def handle_signals(handler: Callable[[int], object]) -> Iterator[None]:
    """Call `handler` for signals that request a stop, inside the context.

    Has no effect in other threads than the main thread, where Python allows no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, lambda number, _: handler(number))
        for number in list_signals()
    }
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def list_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that request this process to stop.

    Ignored signals, such as SIGHUP under nohup, are excluded.
    """
    return tuple(
        number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
    )


class Interruption:
    """Records a request to save and stop, with its reason and its exit code.

    A process has one, created in its main thread.
    """

    def __init__(self) -> None:
        self.signal = 0  # the first signal
        self._code = ExitCode.DONE
        self.reason = ""  # short description; "" without a request to this process
        self._first_signal_at = 0.0  # time of the first signal
        self._max_wall = ""
        self._deadline = float("inf")

    def limit(self, max_wall: str, started_at: float) -> None:
        """Request a stop shortly before `max_wall` ("3.5h"; "": none) after `started_at`."""
        if max_wall:
            seconds = parse_time(max_wall)
            self._max_wall = max_wall
            self._deadline = started_at + seconds - min(120.0, 0.05 * seconds)

    def install(self) -> None:
        """Handle the signals that request a stop of this process; its children must ignore them."""
        for number in list_signals():
            signal.signal(number, lambda number, _: self.receive(number))

    def is_requested(self) -> bool:
        """Return whether a stop is requested; cheap enough for every step."""
        if not self._code and time.monotonic() >= self._deadline:
            self.request(f"launch.max_wall={self._max_wall} is about to expire")
        return self._code != ExitCode.DONE

    @property
    def exit_code(self) -> ExitCode:
        """CANCELLED after Ctrl-C in this process, PREEMPTED after any other request."""
        return self._code or ExitCode.PREEMPTED

    def request(self, reason: str, code: ExitCode = ExitCode.PREEMPTED) -> None:
        """Request a stop; only the first request has an effect."""
        if not self._code:
            self._code, self.reason = code, reason

    def receive(self, number: int) -> None:
        """Handle a signal: the first is a request, a later Ctrl-C ends the process."""
        now = time.monotonic()
        first_signal_at = self._first_signal_at or now
        if number == signal.SIGINT and now - first_signal_at > _SAME_REQUEST_SECONDS:
            os._exit(128 + number)
        self._first_signal_at = first_signal_at
        self.signal = self.signal or number
        if number == signal.SIGINT:
            self.request("Ctrl-C", ExitCode.CANCELLED)
        else:
            self.request(signal.Signals(number).name)
