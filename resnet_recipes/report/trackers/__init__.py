"""Send the records of a run to TensorBoard, Weights & Biases, MLflow or a CSV file.

Each tracker runs in a thread: training never waits for it, and survives its failures.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from resnet_recipes.base import extras
from resnet_recipes.base.errors import Problem
from resnet_recipes.base.extras import TRACKERS
from resnet_recipes.base.text import Say
from resnet_recipes.report.trackers.base import Tracker

#: Maximum number of waiting events; more are dropped, but stay in metrics.jsonl.
MAX_WAITING_EVENTS = 10_000

#: Seconds to wait for trackers at the end of a run; after the first few, a message is shown.
CLOSING_SECONDS = (3.0, 27.0)


class BackgroundTracker:
    """Passes events to a tracker from a thread.

    The first failure is reported and ends only the tracker.
    """

    def __init__(
        self, name: str, open_tracker: Callable[[], Tracker], settings: Mapping[str, object]
    ):
        self.name, self._open, self._settings = name, open_tracker, settings
        self._events: queue.SimpleQueue[Callable[[Tracker], None] | None] = queue.SimpleQueue()
        self._failures: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._has_dropped = self._has_failed = self._is_finished = False
        self._thread = threading.Thread(target=self._work, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def begin(self, step: int) -> None:
        """Start or continue the curves after `step` completed steps."""
        self._pass(lambda tracker: tracker.begin(self._settings, step))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._pass(lambda tracker: tracker.scalars(step, values))

    def take_failures(self) -> Iterator[str]:
        """Yield the failures since the last call, one sentence each."""
        while not self._failures.empty():
            yield self._failures.get()

    def end(self, is_finished: bool) -> None:
        """Close the tracker once all events are sent; does not wait.

        `is_finished` is False if the run was stopped.
        """
        self._is_finished = is_finished
        self._events.put(None)

    def wait(self, show: Say, ended_at: float) -> None:
        """Wait until the tracker is closed, but not for an unresponsive server.

        `ended_at` is the end of the run by time.monotonic(): all trackers have one time limit.
        """
        last = ended_at + sum(CLOSING_SECONDS)
        self._thread.join(max(0.0, ended_at + CLOSING_SECONDS[0] - time.monotonic()))
        if self._thread.is_alive() and (seconds := last - time.monotonic()) > 0:
            show(f"waiting up to {seconds:.0f} s for log.to={self.name}")
            self._thread.join(seconds)
        if self._thread.is_alive():
            show(f"log.to={self.name} did not respond in time; metrics.jsonl has everything")

    def _pass(self, event: Callable[[Tracker], None]) -> None:
        if self._has_failed:
            return
        if self._events.qsize() < MAX_WAITING_EVENTS:
            self._events.put(event)
        elif not self._has_dropped:
            self._has_dropped = True
            self._failures.put(
                f"log.to={self.name} is too slow, so some points are missing there; "
                "metrics.jsonl has everything"
            )

    def _work(self) -> None:
        events = iter(self._events.get, None)
        try:
            tracker = self._open()
            for event in events:
                event(tracker)
            tracker.close(self._is_finished)
        except BaseException as error:  # libraries may raise any exception, even SystemExit
            first = (str(error).splitlines() or [""])[0]
            self._has_failed = True
            self._failures.put(
                f"log.to={self.name} stopped ({type(error).__name__}: {first}); training continues"
            )


def find_tracker_problems(names: Sequence[str]) -> Iterator[Problem]:
    """Yield a problem for each tracker whose package is not installed on this machine."""
    for name in names:
        package, extra = TRACKERS[name]
        yield from extras.find_extra_problems("log.to", name, extra, package)


def open_trackers(
    names: Sequence[str], folder: Path, settings: Mapping[str, object]
) -> list[BackgroundTracker]:
    """Return the trackers of a run, each in its own thread, where it cannot delay training.

    `settings` are the run's hyperparameters.
    """
    return [
        BackgroundTracker(name, partial(open_tracker, name, folder), settings)
        for name in dict.fromkeys(names)
    ]


def open_tracker(name: str, folder: Path) -> Tracker:
    """Return the tracker of a run folder: for csv, the class CsvTracker of the module csv."""
    module = import_module(f"resnet_recipes.report.trackers.{name}")
    return getattr(module, f"{name.title()}Tracker")(folder)
