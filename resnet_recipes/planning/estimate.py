"""The time of a run, from the speeds of a machine."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from math import ceil
from operator import itemgetter
from statistics import mean
from typing import Any, NamedTuple, Self

import numpy as np

from resnet_recipes.base.errors import Hint, Note
from resnet_recipes.base.money import compute_cost
from resnet_recipes.base.text import format_clock, format_long_time, format_number, round_long_time
from resnet_recipes.planning.plan import Plan

#: If the all-reduce alone takes more than this fraction of a step, it is the bottleneck of the
#: step.
MAX_ALL_REDUCE_FRACTION = 0.75

#: Upper bound on actual / measured time of a run, even if the measured steps were uniform.
MAX_DRIFT = 1.08

#: Maximum ratio of the speed with the loader to that of the fastest quarter of steps alone. Above
#: it, the two measurements contradict each other.
MAX_SPEED_RATIO = 1.05

#: Shorter evaluations get no note.
MIN_NOTED_SECONDS = 10


@dataclass(frozen=True)
class Speeds:
    """The combined speeds of all devices of a machine, measured or predicted."""

    # seconds by image size, one value per timed step
    seconds_per_image: Mapping[int, tuple[float, ...]]
    evaluation_images_per_second: float | None = None  # None: unknown
    # speed of the loader alone, by image size; empty: nothing to load
    loader_images_per_second: Mapping[int, float] = field(default_factory=dict)
    images_per_device: int = 1  # images of a timed step on one device
    devices: int = 1
    warm_up_seconds: float = 0.0  # extra seconds of the first steps at an image size
    # speed of training on real images at the first size: loader and steps together
    total_images_per_second: float | None = None
    all_reduce_seconds: float = 0.0  # seconds for the gradients of one step, without other work
    bottlenecks: Mapping[int, str] = field(default_factory=dict)  # bottleneck of a step, by size
    start_seconds: float | None = None  # seconds from command to first step; None: unknown
    save_seconds: float = 0.0  # seconds to write a checkpoint to disk
    # speed of the loader in the first epoch; None: as in other epochs
    first_epoch_images_per_second: float | None = None

    def seconds_at(self, image_size: int) -> "Quartiles":
        """Return the seconds per training image, interpolated by area."""
        areas, quartiles = self._quartiles
        nearest = min(max(image_size**2, areas[0]), areas[-1])
        scale = image_size**2 / nearest
        return Quartiles(*(scale * float(np.interp(nearest, areas, row)) for row in quartiles))

    @cached_property  # read thousands of times for a budget
    def _quartiles(self) -> tuple[list[int], list[tuple[float, ...]]]:
        """The areas of the measured sizes, and each quartile of the seconds at these sizes."""
        spreads = {
            image_size**2: np.percentile(seconds, (25, 50, 75))
            for image_size, seconds in sorted(self.seconds_per_image.items())
        }
        return list(spreads), list(zip(*spreads.values(), strict=True))

    def load_seconds(self, image_size: int) -> float:
        """Return the loader's seconds per image, interpolated by area; 0: nothing to load."""
        if not self.loader_images_per_second:
            return 0.0
        sizes, rates = zip(*sorted(self.loader_images_per_second.items()), strict=True)
        return float(np.interp(image_size**2, np.square(sizes), 1 / np.array(rates)))

    def bottleneck_at(self, image_size: int) -> str:
        """Return what limits the speed at an image size."""
        median = self.seconds_at(image_size).median
        if self.load_seconds(image_size) > median:
            return "loader"
        step = median * self.images_per_device * self.devices
        if self.all_reduce_seconds > MAX_ALL_REDUCE_FRACTION * step:
            return "all-reduce"
        return self.bottlenecks.get(image_size, "step")

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Return the speeds from the JSON of `asdict`."""
        times = value["seconds_per_image"]
        rates = value["loader_images_per_second"]
        seconds = {int(image_size): tuple(map(float, times[image_size])) for image_size in times}
        speeds = {int(image_size): float(rates[image_size]) for image_size in rates}
        return cls(**value | {"seconds_per_image": seconds, "loader_images_per_second": speeds})


class Quartiles(NamedTuple):
    """The spread of a measurement."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Phase:
    """A part of a run at one image size."""

    pixels: int  # image height and width
    epochs: float
    low: float  # minutes, if steps are fast
    minutes: float
    high: float  # minutes, if steps are slow
    images_per_second: float  # speed of all devices together
    limit: str  # the bottleneck; "" if it is unknown


@dataclass(frozen=True)
class Estimate:
    """The time of a run."""

    phases: tuple[Phase, ...]
    evaluation_minutes: float | None  # None: unknown
    other_minutes: float | None = None  # startup and checkpoints; None: unknown

    @property
    def minutes(self) -> float:
        """Training minutes."""
        return sum(phase.minutes for phase in self.phases)

    @property
    def total_minutes(self) -> float:
        """Total minutes of all known parts."""
        return self.minutes + (self.evaluation_minutes or 0.0) + (self.other_minutes or 0.0)

    @property
    def max_minutes(self) -> float:
        """Maximum minutes of all known parts, with slow steps or MAX_DRIFT."""
        slower = self.total_minutes - self.minutes + self.bounds.high
        return max(slower, MAX_DRIFT * self.total_minutes)

    @property
    def is_mostly_evaluation(self) -> bool:
        """Whether evaluations take longer than training."""
        return (self.evaluation_minutes or 0.0) > self.minutes

    @property
    def bounds(self) -> "MinuteBounds":
        """Minimum and maximum training minutes."""
        low = sum(phase.low for phase in self.phases)
        return MinuteBounds(low, sum(phase.high for phase in self.phases))

    def cost(self, price: float) -> float:
        """Return the cost at `price` per hour of all known parts."""
        return compute_cost(60 * self.total_minutes, price)


class MinuteBounds(NamedTuple):
    """The minimum and maximum training minutes of a run."""

    low: float
    high: float


class RunForecast(NamedTuple):
    """The expected time of a run, and its source."""

    estimate: Estimate
    speeds: Speeds
    source: str  # a description
    when: float | None = None  # time of the measurement in seconds since 1970; None: not measured
    is_guess: bool = False  # whether the speeds come from FLOPs alone

    def round_time(self, seconds: float) -> int:
        """Round a time to the precision of its source."""
        return round(seconds) if self.when else round_long_time(seconds, self.is_guess)

    def format_time(self, seconds: float, about: str = "about ") -> str:
        """Format a time with the precision of its source, after `about` if it is not measured."""
        seconds = self.round_time(seconds)
        return format_clock(seconds) if self.when else f"{about}{format_long_time(seconds)}"


def find_contradiction_note(plan: Plan, speeds: Speeds) -> Note | None:
    """Return a note if training with the loader was faster than steps alone; None otherwise."""
    size = plan.image_sizes[0]
    both = speeds.total_images_per_second
    step = speeds.seconds_at(size)
    if not both or both * step.low <= MAX_SPEED_RATIO:
        return None
    return Note(
        f"the parts disagree: {format_number(1 / step.median)} images/s alone, but "
        f"{format_number(both)} with the loader, so the machine was busy",
        ("--again", Hint("measure while nothing else is running")),
    )


def find_evaluation_note(plan: Plan, forecast: RunForecast) -> Note | None:
    """Return a note if evaluations take longer than training and can be fewer."""
    expected, interval = forecast.estimate, plan.evaluations.interval
    evaluating = expected.evaluation_minutes or 0.0
    is_long = expected.is_mostly_evaluation and 60 * evaluating >= MIN_NOTED_SECONDS
    if not is_long or interval >= plan.total_steps:
        return None
    epochs = ceil(interval * ceil(evaluating / expected.minutes) / plan.steps_per_epoch)
    is_last = epochs * plan.steps_per_epoch >= plan.total_steps
    text = "evaluations take at least as long as training"
    return Note(text, f"evaluation.interval={'1dur' if is_last else f'{epochs}ep'}")


def estimate(plan: Plan, speeds: Speeds) -> Estimate:
    """Return the time of a run at these speeds."""
    first = plan.image_sizes[0]
    alone = max(speeds.seconds_at(first).median, speeds.load_seconds(first))
    total = 1 / (speeds.total_images_per_second or 1 / alone)
    contention = max(0.0, total - alone)  # seconds per image: they may share CPU cores
    low_factor = min(1.0, total / alone)  # below 1 if the machine was busy during a measurement
    more = speeds.warm_up_seconds
    if speeds.first_epoch_images_per_second:
        more += plan.epoch_images[0] * max(0.0, 1 / speeds.first_epoch_images_per_second - alone)
    phases = []
    for image_size, group in groupby(
        zip(plan.image_sizes, plan.epoch_images, strict=True), itemgetter(0)
    ):
        images = sum(count for _, count in group)
        load = speeds.load_seconds(image_size)
        low, middle, high = (
            (images * (max(seconds, load) + contention) + more) / 60
            for seconds in speeds.seconds_at(image_size)
        )
        more = speeds.warm_up_seconds
        epochs, rate = images / plan.epoch_images[0], images / (60 * middle)
        limit = speeds.bottleneck_at(image_size)
        phases.append(Phase(image_size, epochs, low_factor * low, middle, high, rate, limit))
    evaluation = other = None
    if speeds.evaluation_images_per_second:
        load = speeds.load_seconds(plan.recipe.data.eval_size)
        seconds = max(1 / speeds.evaluation_images_per_second, load) + contention
        evaluation = plan.evaluated_images * seconds / 60
    if speeds.start_seconds is not None:
        other = (speeds.start_seconds + (plan.saves + 1) * speeds.save_seconds) / 60
    return Estimate(tuple(phases), evaluation, other)


def sample_epochs(sizes: Sequence[int], count: int) -> list[int]:
    """Return the epochs of a run to time; `sizes` are by epoch.

    If the image size is constant, these are the first `count`. Otherwise they are the first two and
    one epoch at each of `count` - 2 other sizes, at least at the largest. The first epoch fills
    caches and is counted with the duration of the second.
    """
    other_sizes = sorted(set(sizes) - set(sizes[:2]), reverse=True)
    if not other_sizes:
        return list(range(min(count, len(sizes))))
    last = {size: epoch for epoch, size in enumerate(sizes)}
    picks = min(max(1, count - 2), len(other_sizes))
    spread = {
        other_sizes[index * (len(other_sizes) - 1) // max(1, picks - 1)] for index in range(picks)
    }
    return sorted({0, 1, *(last[size] for size in spread)})


def make_speeds(plan: Plan, epoch_seconds: Mapping[int, float], evaluation: float | None) -> Speeds:
    """Return the speeds of a run from the seconds of some epochs, counted from 0.

    The first epoch is counted with the duration of the second. `evaluation` is in images per
    second, if measured.
    """
    seconds_by_size = defaultdict(list)
    for epoch, seconds in {**epoch_seconds, 0: epoch_seconds[1]}.items():
        seconds_by_size[plan.image_sizes[epoch]].append(seconds / plan.epoch_images[epoch])
    step = {image_size: (mean(laps),) for image_size, laps in seconds_by_size.items()}
    # the parts of a step were not timed
    return Speeds(step, evaluation, bottlenecks=dict.fromkeys(plan.image_sizes, ""))
