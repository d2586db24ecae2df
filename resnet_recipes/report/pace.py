"""Estimate the time left in a run, given that steps take longer as images grow."""

from math import ceil

from resnet_recipes.run_folder.facts import RunFacts

SMOOTHING = 0.2  # weight of a new measurement in the running mean


class Pace:
    """Seconds that 10^15 operations of training take: a running mean."""

    def __init__(self, facts: RunFacts):
        self._facts = facts
        self._seconds: float | None = None
        self._is_settled = False
        self._evaluation = 0.0

    def observe(self, done: int, seconds_per_step: float, settled: bool) -> None:
        """Take in one logged interval that ends after `done` steps.

        `settled`: all of it was at one image size, and it was not the first.
        """
        new = seconds_per_step / (self._facts.pflops(done) - self._facts.pflops(done - 1))
        if settled and self._is_settled and self._seconds is not None:
            self._seconds += SMOOTHING * (new - self._seconds)
        elif settled or not self._is_settled:
            self._seconds, self._is_settled = new, settled

    def evaluated(self, seconds: float) -> None:
        """Take in the seconds of an evaluation."""
        self._evaluation = seconds

    def seconds_left(self, done: int) -> float | None:
        """Estimate the seconds from here to the end, evaluations included.

        None before the first measurement.
        """
        facts = self._facts
        if self._seconds is None:
            return None
        evaluations = ceil((facts.total_steps - done) / facts.eval_steps)
        left = facts.pflops(facts.total_steps) - facts.pflops(done)
        return self._evaluation * evaluations + self._seconds * left
