"""Exact training durations, in the units that recipes use."""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import ceil

from resnet_recipes.base.errors import BrokenRuleError
from resnet_recipes.base.names import DECIMAL
from resnet_recipes.base.text import format_count

_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,12})?(?:e[+-]?\d{1,2})?)\s*(ep|ba|dur)")

_UNSIGNED = r"(\d+(?:\.\d+)?)"
_TIME = re.compile(f"{_UNSIGNED}([hms])")
_AMOUNT = re.compile(rf"\${_UNSIGNED}|{_UNSIGNED}\$")

#: Seconds per unit of wall-clock time.
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}

MAX_STEPS = 10**9

MAX_EPOCHS = 10_000

#: Upper limit of a time, in seconds: ten years.
_MAX_SECONDS = 10 * 365 * 24 * 3600.0

#: Settings that determine the duration of a run.
SETTINGS = ("max_duration", "scale_schedule_ratio")


@dataclass(frozen=True)
class Duration:
    """A training duration.

    The unit is epochs ("8ep"), batches, that is optimizer steps ("100ba"), or a fraction of the run
    ("0.5dur").
    """

    value: Fraction
    unit: str  # "ep", "ba" or "dur"

    @staticmethod
    @cache
    def parse(text: str) -> "Duration":
        """Parse a duration. Raises BrokenRuleError if it is not valid."""
        match = _DURATION.fullmatch(str(text).strip())
        if match is None:
            raise BrokenRuleError("must be a number and a unit: 8ep, 100ba or 0.5dur")
        value = Fraction(match[1])
        unit = match[2]
        if unit == "dur" and value > 1:
            raise BrokenRuleError("must be between 0dur and 1dur")
        if value > (MAX_EPOCHS if unit == "ep" else MAX_STEPS):
            limits = f"{MAX_STEPS:,} steps and {MAX_EPOCHS:,} epochs"
            raise BrokenRuleError(f"is too long: the maximum is {limits}")
        return Duration(value, unit)

    def scale(self, ratio: Fraction) -> "Duration":
        """Return this duration times `ratio`, rounded down to whole units.

        A fraction of the run is unchanged, and so is any duration for a ratio of 1.

        28.8ep becomes 28ep. Composer multiplies floats: at 90 epochs, 12 of the ratios from
        0.01 to 10.00 give one epoch less, for example 0.7 (62 instead of 63).
        """
        if self.unit == "dur" or ratio == 1:
            return self
        return Duration(Fraction(int(self.value * ratio)), self.unit)

    def to_words(self) -> str:
        """Return this duration for people, as "90 epochs", "1,000 steps" or "10% of the run"."""
        if self.unit == "dur":
            return f"{float(100 * self.value):g}% of the run"
        return format_count(float(self.value), "epoch" if self.unit == "ep" else "step", ",.12g")

    def __str__(self) -> str:
        number = str(self.value) if self.value.denominator == 1 else f"{float(self.value):g}"
        return f"{number}{self.unit}"


def parse_time(text: str) -> float:
    """Return the seconds of a time such as 2h, 90m or 45s.

    Raises BrokenRuleError if it is not valid.
    """
    if not (match := _TIME.fullmatch(text)):
        raise BrokenRuleError("must be a number and a unit: 3.5h, 90m or 45s")
    return _check_bound(float(match[1]) * _UNITS[match[2]])


def _check_bound(seconds: float) -> float:
    if not seconds:
        raise BrokenRuleError("must be positive")
    if seconds > _MAX_SECONDS:
        raise BrokenRuleError("is longer than ten years")
    return seconds


def find_amount(budget: str) -> str:
    """Return the number in a budget such as $20; "" if the budget is a time."""
    match = _AMOUNT.fullmatch(budget)
    return (match[1] or match[2]) if match else ""


def parse_budget(text: str, price: float | None) -> float:
    """Return the seconds of a budget: a time, or an amount such as $20 at an hourly price.

    Raises BrokenRuleError if it is not valid, or an amount without a price.
    """
    if amount := find_amount(text):
        if not price:
            raise BrokenRuleError("needs a price per hour")
        return _check_bound(3600 * float(amount) / price)
    if not _TIME.fullmatch(text):
        raise BrokenRuleError("must be a time (2h, 90m, 45s) or an amount ('$20')")
    return parse_time(text)


def is_duration(text: str) -> bool:
    """Return whether `text` is a duration in any unit."""
    try:
        Duration.parse(text)
        return True
    except BrokenRuleError:
        return False


def find_epochs_rule(text: str) -> str:
    """Return the rule that a value of `epochs` breaks, or ""."""
    if is_duration(text) or (DECIMAL.fullmatch(text) and float(text)):
        return ""
    return "must be a positive number of epochs, or a duration such as 400ba (steps)"


def parse_fraction(value: float | str) -> Fraction:
    """Return a number exactly as written: 0.7 is 7/10, not the nearest binary float."""
    return Fraction(str(value))


def count_steps_per_epoch(examples: int, global_size: int) -> int:
    """Return the number of optimizer steps in one epoch; an incomplete last batch is dropped."""
    return examples // global_size


@dataclass(frozen=True)
class Horizon:
    """The duration of a run; converts other durations to steps."""

    total_steps: int
    steps_per_epoch: int

    @cache  # noqa: B019  a run has one horizon and a handful of durations
    def steps(self, duration: Duration) -> int:
        """Convert to steps, rounded down; at least 1 unless the duration is 0."""
        scale = {"ep": self.steps_per_epoch, "ba": 1, "dur": self.total_steps}[duration.unit]
        return max(1, int(duration.value * scale)) if duration.value else 0

    def interval(self, duration: Duration) -> int:
        """Convert an interval to steps; a fraction of the run is rounded up.

        So "0.1dur" recurs at most ten times.
        """
        if duration.unit == "dur":
            return ceil(duration.value * self.total_steps)
        return self.steps(duration)

    @property
    def epochs(self) -> Fraction:
        """Duration of the run in epochs, which may be a fraction."""
        return Fraction(self.total_steps, self.steps_per_epoch)


@dataclass(frozen=True)
class Recurrence:
    """Something that happens at regular intervals, and after the last step of a run."""

    interval: int  # steps
    total_steps: int
    offset: int = 0  # step from which the intervals are counted, in both directions

    def is_due(self, done: int) -> bool:
        """Return whether it happens after `done` steps."""
        return done == self.total_steps or (done - self.offset) % self.interval == 0

    def count(self, done: int = 0) -> int:
        """Return how often it happens after more than `done` steps."""
        if done >= self.total_steps:
            return 0
        first = done - self.offset
        last = self.total_steps - 1 - self.offset
        return 1 + last // self.interval - first // self.interval
