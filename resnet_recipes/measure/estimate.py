"""How long a run will take and what it will cost, from measured speeds: plain arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median, quantiles
from typing import Any, Self

#: If exchanging gradients alone takes more than this share of a step, the step is waiting for the
#: exchange.
WAITS = 0.75


@dataclass(frozen=True)
class Speeds:
    """What was measured on all devices of a machine at once."""

    # image size -> seconds per training image, one value per step
    step: Mapping[int, tuple[float, ...]]
    loader: float | None  # images per second of the loader alone; None: nothing to load
    evaluation: float  # images per second
    batch: int  # images per device in each timed step
    devices: int = 1
    warm_up_seconds: float = 0.0  # extra seconds of the first steps at an image size
    # images per second of training on real images at the first size
    end_to_end: float | None = None
    # seconds to exchange the gradients of one step, with nothing else running
    exchange: float = 0.0

    def seconds_at(self, side: int) -> tuple[float, float, float]:
        """Return low, middle and high seconds of one training image, interpolated by area."""
        known = {measured: _spread(laps) for measured, laps in sorted(self.step.items())}
        below = max((size for size in known if size <= side), default=min(known))
        above = min((size for size in known if size >= side), default=max(known))
        if below == above:
            scale = (side / below) ** 2
            return tuple(seconds * scale for seconds in known[below])
        share = (side**2 - below**2) / (above**2 - below**2)
        return tuple(
            (1 - share) * a + share * b for a, b in zip(known[below], known[above], strict=True)
        )

    def step_seconds(self, side: int) -> float:
        """Return the seconds of a step of the timed size."""
        return self.seconds_at(side)[1] * self.batch * self.devices

    def waits_for_exchange(self, side: int) -> bool:
        """Return whether exchanging gradients takes too long for computation to hide it."""
        return self.exchange > WAITS * self.step_seconds(side)

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Self:
        """Return the speeds whose `asdict` was written as JSON."""
        step = {int(side): tuple(map(float, laps)) for side, laps in value["step"].items()}
        return cls(**value | {"step": step})


@dataclass(frozen=True)
class Phase:
    """A part of a run at one image size."""

    pixels: int
    epochs: int
    low: float  # minutes
    minutes: float
    high: float
    images_per_second: float  # of all devices
    limit: str  # the bottleneck: step, loader, or exchange


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
        """Least and most training minutes."""
        return sum(phase.low for phase in self.phases), sum(phase.high for phase in self.phases)

    def cost(self, price: float) -> float:
        """Return what training and evaluation cost at `price` per hour."""
        return self.total_minutes / 60 * price


def estimate(
    sizes: Sequence[int],
    steps_per_epoch: int,
    global_size: int,
    evaluated: int,
    speeds: Speeds,
) -> Estimate:
    """Return the estimate of a run with images of `sizes` by epoch.

    `evaluated` counts the images of evaluations.
    """
    phases = []
    load = 1 / speeds.loader if speeds.loader else 0.0
    contention = _contention(sizes[0], load, speeds)
    for side, group in groupby(sizes):
        epochs = len(list(group))
        images = epochs * steps_per_epoch * global_size
        step = speeds.seconds_at(side)
        low, middle, high = (
            (images * (max(seconds, load) + contention) + speeds.warm_up_seconds) / 60
            for seconds in step
        )
        limit = "exchange" if speeds.waits_for_exchange(side) else "step"
        limit = "loader" if load > step[1] else limit
        phases.append(Phase(side, epochs, low, middle, high, images / (60 * middle), limit))
    return Estimate(tuple(phases), evaluated / speeds.evaluation / 60)


def _contention(side: int, load: float, speeds: Speeds) -> float:
    """Return the seconds per image by which loading and training slow each other down.

    They may share CPU cores.
    """
    if not speeds.end_to_end:
        return 0.0
    return max(0.0, 1 / speeds.end_to_end - max(speeds.seconds_at(side)[1], load))


def _spread(laps: Sequence[float]) -> tuple[float, float, float]:
    """Return the quartiles of some seconds; all three are the same for one value."""
    if len(laps) < 2:
        return (laps[0],) * 3
    low, _, high = quantiles(laps, n=4)
    return max(low, min(laps)), median(laps), min(high, max(laps))
