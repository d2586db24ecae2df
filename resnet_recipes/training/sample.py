"""Train some epochs of a run to time them; nothing is evaluated or saved."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from resnet_recipes.training.loop import train
from resnet_recipes.training.reporter import StopRequest
from resnet_recipes.training.run import Run


class Silent:
    """What a reporter that only counts or times steps leaves out."""

    def log(self, done: int, stream: object) -> None:
        """Record nothing."""

    def evaluate(self, done: int) -> None:
        """Evaluate nothing."""

    def save(self, done: int) -> None:
        """Save nothing."""


class EpochTimer(Silent):
    """A reporter that times each epoch."""

    def __init__(
        self,
        run: Run,
        tell: Callable[[int, float], None],
        interruption: StopRequest,
        beat: Callable[[int, str], None],
    ):
        self._run, self._tell, self._interruption, self._beat = run, tell, interruption, beat
        self._since = time.perf_counter()

    def wants_to_stop(self) -> bool:
        """Return whether this rank was asked to stop."""
        return self._interruption.requested

    def step(self, done: int, loss: Tensor) -> None:
        """Note a completed step and, when the device has finished an epoch, the time."""
        self._beat(done, "train")
        if done % self._run.plan.steps_per_epoch == 0:
            if self._run.rank.device.type == "cuda":
                torch.cuda.synchronize(self._run.rank.device)
            now = time.perf_counter()
            self._tell(done // self._run.plan.steps_per_epoch - 1, now - self._since)
            self._since = now


def time_epochs(
    run: Run,
    epochs: Sequence[int],
    tell: Callable[[int, float], None],
    interruption: StopRequest,
    beat: Callable[[int, str], None],
) -> None:
    """Train `epochs`, counted from 0, as the whole run would.

    Call `tell` with the number and seconds of each, `beat` at every step.

    Consecutive epochs are trained without a pause; before any other epoch loading restarts, which
    counts in its time.
    """
    steps = run.plan.steps_per_epoch
    for first, last in _rows(epochs):
        timer = EpochTimer(run, tell, interruption, beat)
        train(run, timer, first * steps, (last + 1) * steps)
        if interruption.requested:
            break


def _rows(epochs: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last epoch of each series of consecutive ones."""
    starts = [epoch for epoch in epochs if epoch - 1 not in epochs]
    ends = [epoch for epoch in epochs if epoch + 1 not in epochs]
    return list(zip(starts, ends, strict=True))
