"""Estimate the time left in a run, given that steps take longer as images grow."""

from math import ceil

from resnet_recipes.run_folder.facts import RunFacts

SMOOTHING = 0.2  # weight of a new measurement in the running mean


class Pace:
    """Seconds per step by image size.

    Measured, or scaled from the nearest measured size by the number of pixels.
    """

    def __init__(self, facts: RunFacts):
        self._facts = facts
        self._settled: dict[int, float] = {}  # seconds per step by size, from settled intervals
        # the same from the first interval at a size, warm-up included
        self._first: dict[int, float] = {}
        self._evaluation = 0.0

    def observe(self, pixels: int, seconds_per_step: float, settled: bool) -> None:
        """Take in one logged interval.

        `settled`: all of it was at this size, and it was not the first.
        """
        if settled:
            before = self._settled.get(pixels, seconds_per_step)
            self._settled[pixels] = before + SMOOTHING * (seconds_per_step - before)
        else:
            self._first[pixels] = seconds_per_step

    def evaluated(self, seconds: float) -> None:
        """Take in the seconds of an evaluation."""
        self._evaluation = seconds

    def seconds_left(self, done: int) -> float | None:
        """Estimate the seconds from here to the end, evaluations included.

        None before the first measurement.
        """
        facts = self._facts
        if not self._first and not self._settled:
            return None
        seconds = self._evaluation * ceil((facts.total_steps - done) / facts.eval_steps)
        while done < facts.total_steps:
            epoch_end = min(
                facts.total_steps, (done // facts.steps_per_epoch + 1) * facts.steps_per_epoch
            )
            seconds += (epoch_end - done) * self._seconds_per_step(facts.pixels_at(done))
            done = epoch_end
        return seconds

    def _seconds_per_step(self, pixels: int) -> float:
        seen = self._first | self._settled
        nearest = min(seen, key=lambda size: abs(size - pixels))
        return seen[nearest] * (pixels / nearest) ** 2
