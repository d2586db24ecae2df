"""The ranks of a run, as their launcher sees them through the run folder."""

import time
from collections.abc import Iterator
from pathlib import Path

from resnet_recipes.jobs import watchdog
from resnet_recipes.jobs.watchdog import STALLED, Beat
from resnet_recipes.run_folder.ending import Ending, read
from resnet_recipes.run_folder.names import ENDINGS


class Observer:
    """What ranks have written since the observer was created.

    It compares what they write, and measures time itself: machines' clocks differ, and may be set
    during a run.
    """

    def __init__(self, folder: Path):
        """Note what earlier runs left in the folder."""
        self._folder = folder
        self._old_beats, self._old_endings = set(watchdog.beats(folder)), set(_endings(folder))
        self._last: list[Beat] = []
        self._changed = time.monotonic()

    def beats(self) -> list[Beat]:
        """Return the last beat of every rank, by rank."""
        return [beat for beat in watchdog.beats(self._folder) if beat not in self._old_beats]

    def endings(self) -> list[Ending]:
        """Return how ranks ended, in the last attempt."""
        found = [ending for ending in _endings(self._folder) if ending not in self._old_endings]
        last = max((ending.attempt for ending in found), default=0)
        return [ending for ending in found if ending.attempt == last]

    def stall(self) -> str:
        """Return a sentence that names the rank that lags, if none has made progress for a while.

        Call it regularly.
        """
        beats, now = self.beats(), time.monotonic()
        if beats != self._last:
            self._last, self._changed = beats, now
        if not beats or now - self._changed < STALLED:
            return ""
        last = min(beats, key=lambda beat: beat.step)
        where = f"it is in '{last.phase}'"
        if len(beats) > 1:
            where = f"rank {last.rank} is behind: {last.step:,} steps done, now in '{last.phase}'"
        return (
            f"no progress for {(now - self._changed) / 60:.0f} minutes; {where} (process "
            f"{last.pid} on {last.host})"
        )


def _endings(folder: Path) -> Iterator[Ending]:
    for path in (folder / ENDINGS).glob("rank*.json"):
        if ending := read(path):
            yield ending
