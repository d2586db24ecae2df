"""Facts of a run for reports: plain values, so that reading results does not need torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from resnet_recipes.base.duration import Recurrence


@dataclass
class PublishedResult:
    """A result that the authors of a recipe published."""

    top1: float  # percent
    epochs: int | None = None
    minutes: float | None = None
    hardware: str = ""
    source: str = ""
    model: str = "resnet50"
    clock: str = ""  # clock of the minutes: MLPerf or DAWNBench; "": training time

    @property
    def time(self) -> str:
        """The minutes, with their clock unless it is training time; "" if they are unknown."""
        on = f" on {self.clock}'s clock" if self.clock else ""
        return f"{self.minutes:g} min{on}" if self.minutes else ""


def find_nearest(results: Sequence[PublishedResult], epochs: float) -> PublishedResult | None:
    """Return the published result whose number of epochs is nearest, or None."""
    return min(
        results,
        key=lambda result: abs((result.epochs or float("inf")) - epochs),
        default=None,
    )


def count_pflops(flops: Sequence[int], steps_per_epoch: int, total_steps: int, done: int) -> float:
    """Return the compute of `done` steps in PFLOPs; `flops` is per epoch.

    The last epoch is shorter if `total_steps` ends within it.
    """
    epochs, steps = divmod(done, steps_per_epoch)
    size = min(steps_per_epoch, total_steps - epochs * steps_per_epoch)
    partial = flops[epochs] * steps / size if steps else 0
    return (sum(flops[:epochs]) + partial) / 1e15


@dataclass(frozen=True)
class RunFacts:
    """The parts of a plan that reports need."""

    recipe: str
    folder: Path  # the run folder
    total_steps: int
    steps_per_epoch: int
    global_size: int  # examples per step, over all devices
    flops: tuple[int, ...]  # training FLOPs by epoch, over all devices
    evaluations: Recurrence
    devices: str  # "8 x NVIDIA A100-SXM4-40GB" or "CPU, 2 cores"
    # published results; empty if the run uses other data
    published: tuple[PublishedResult, ...] = ()
    estimated_seconds: float | None = None  # training time, if this machine was measured before
    price_per_hour: float | None = None  # `launch.price`
    has_top5: bool = True  # whether there are more than five classes, so that top-5 varies
    shows_all_times: bool = False  # whether the summary shows all times, or only the training time
    evaluation_pflops: float = 0.0  # compute of an evaluation

    def epoch(self, done: int) -> float:
        """Return the number of epochs in `done` steps."""
        return done / self.steps_per_epoch

    @property
    def epochs(self) -> float:
        """Duration of the run in epochs."""
        return self.epoch(self.total_steps)

    def pflops(self, done: int) -> float:
        """Return the compute of `done` steps in PFLOPs."""
        return count_pflops(self.flops, self.steps_per_epoch, self.total_steps, done)
