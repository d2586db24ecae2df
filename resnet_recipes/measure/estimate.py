"""How long a run will take and what it will cost, from measured speeds: plain arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from statistics import median, quantiles
from typing import Any, Self

#: Share by which several ranks' steps may be slower than one rank's, where their exchange of gradients was not
#: measured.
EXCHANGE = 0.15


@dataclass(frozen=True)
class Speeds:
    """What was measured on one device of a machine."""

    step: Mapping[int, tuple[float, ...]]  # image size -> seconds an image of training took, a value a step
    loader: float | None  # images per second of this machine's loader; None: nothing to load
    evaluation: float  # images per second on one device
    batch: int  # images of the steps that were timed

    def seconds_at(self, side: int) -> tuple[float, float, float]:
        """Return low, middle and high seconds of one training image, interpolated by area between measured sizes."""
        known = {measured: _spread(laps) for measured, laps in sorted(self.step.items())}
        below = max((size for size in known if size <= side), default=min(known))
        above = min((size for size in known if size >= side), default=max(known))
        if below == above:
            scale = (side / below) ** 2
            return tuple(seconds * scale for seconds in known[below])
        share = (side**2 - below**2) / (above**2 - below**2)
        return tuple((1 - share) * a + share * b for a, b in zip(known[below], known[above], strict=True))

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Self:
        """Return what `as_json` gave."""
        step = {int(side): tuple(map(float, laps)) for side, laps in value["step"].items()}
        return cls(step, value["loader"], float(value["evaluation"]), int(value["batch"]))


@dataclass(frozen=True)
class Phase:
    """A part of a run at one image size."""

    pixels: int
    epochs: int
    low: float  # minutes
    minutes: float
    high: float
    images_per_second: float  # of all devices
    limit: str  # what it waits for: the step, or the loader


@dataclass(frozen=True)
class Estimate:
    """What a run will take."""

    phases: tuple[Phase, ...]
    evaluation_minutes: float

    @property
    def minutes(self) -> float:
        """Training minutes."""
        return sum(phase.minutes for phase in self.phases)

    @property
    def total_minutes(self) -> float:
        """Minutes of training and evaluation; start-up and checkpoints are left out."""
        return self.minutes + self.evaluation_minutes

    @property
    def bounds(self) -> tuple[float, float]:
        """Training minutes at least and at most."""
        return sum(phase.low for phase in self.phases), sum(phase.high for phase in self.phases)

    def cost(self, price: float) -> float:
        """Return what training and evaluation cost at `price` an hour."""
        return self.total_minutes / 60 * price


def estimate(
    sizes: Sequence[int], steps_per_epoch: int, global_size: int, devices: int, evaluated: int, speeds: Speeds
) -> Estimate:
    """Return the estimate of a run with images of `sizes` by epoch; `evaluated` counts the images of evaluations."""
    phases = []
    for side, group in groupby(sizes):
        epochs = len(list(group))
        images = epochs * steps_per_epoch * global_size
        step = tuple(seconds / devices for seconds in speeds.seconds_at(side))
        if devices > 1:
            step = (step[0], step[1] * (1 + EXCHANGE / 3), step[2] * (1 + EXCHANGE))
        load = 1 / speeds.loader if speeds.loader else 0.0
        low, middle, high = (images * max(seconds, load) / 60 for seconds in step)
        limit = "loader" if load > step[1] else "step"
        phases.append(Phase(side, epochs, low, middle, high, images / (60 * middle), limit))
    return Estimate(tuple(phases), evaluated / (speeds.evaluation * devices) / 60)


def _spread(laps: Sequence[float]) -> tuple[float, float, float]:
    """Return the quartiles of some seconds; all three are the same for one value."""
    if len(laps) < 2:
        return (laps[0],) * 3
    low, _, high = quantiles(laps, n=4)
    return max(low, min(laps)), median(laps), min(high, max(laps))
