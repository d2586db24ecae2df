"""Learning-rate curves: the fraction of the peak learning rate, as a pure function of the step.

Step k uses the value at k completed steps, so the first step of a warm-up from 0 has learning rate
0. Composer up to 0.9, which produced the published results, does the same. From 0.10, it uses the
value at k - 1 in step k, so that its first two steps have learning rate 0. A curve is `rise`, up to
the end of the warm-up, times a curve that then falls, until step `total` or at milestones. These
are steps from the start of the run; `cooldown` counts the last steps before `total`.
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import cos, pi, sqrt
from typing import TypeVar

ScheduleValue = TypeVar("ScheduleValue")


def rise(step: int, warmup: int, start: float = 0.0) -> float:
    """Return the fraction that rises linearly from `start` to 1 during the warm-up."""
    return start + (1 - start) * step / warmup if step < warmup else 1.0


def cosine(
    step: int, *, total: int, warmup: int = 0, final: float = 0.0, from_start: bool = False
) -> float:
    """Return half a cosine from 1 to `final` (Loshchilov and Hutter, 2017, arXiv:1608.03983).

    The fall starts at the end of the warm-up or, with `from_start`, at step 0: then the warm-up
    hides its start.
    """
    first = 0 if from_start and step >= warmup else warmup
    return final + (1 - final) * (1 + cos(pi * _compute_progress(step, first, total))) / 2


def polynomial(
    step: int, *, total: int, warmup: int = 0, final: float = 0.0, power: float = 1.0
) -> float:
    """Return (1 - progress) ** power from 1 to `final` (You et al., 2017, arXiv:1708.03888)."""
    return final + (1 - final) * (1 - _compute_progress(step, warmup, total)) ** power


def multistep(step: int, *, milestones: Sequence[int], gamma: float) -> float:
    """Return `gamma` once for each milestone up to `step` (He et al., 2015, arXiv:1512.03385)."""
    return gamma ** bisect_right(milestones, step)


def wsd(step: int, *, total: int, cooldown: int, shape: str = "linear") -> float:
    """Return 1, falling to 0 in the last `cooldown` steps (Zhai et al., 2022, arXiv:2106.04560).

    The fall is linear or, with `sqrt`, 1 - sqrt(progress) (Haegele et al., 2024, arXiv:2405.18392).
    Learning rates before the fall do not depend on `total`.
    """
    progress = _compute_progress(step, total - cooldown, total)
    return 1 - (sqrt(progress) if shape == "sqrt" else progress)


def get_lr_step(step: int, *, steps_per_epoch: int, warmup: int = 0, start: float = 0.0) -> int:
    """Return the step whose learning rate applies to the entire epoch of `step`: its first step.

    An epoch in a warm-up from 0 uses the first step of the next epoch, or the end of the warm-up if
    that comes first. The first epoch would otherwise train nothing. As in the NVIDIA examples,
    epoch e of 8 uses (e + 1) / 8 of the peak.
    """
    first = step - step % steps_per_epoch
    return min(first + steps_per_epoch, warmup) if first < warmup and not start else first


def get_epoch_value(epoch: int, values: Sequence[ScheduleValue]) -> ScheduleValue:
    """Return the value for an epoch, counted from 0; the last value applies to all later epochs."""
    return values[min(epoch, len(values) - 1)]


def _compute_progress(step: int, first: int, last: int) -> float:
    """Return the progress from step `first` to `last`, clipped to 0..1."""
    return min(1.0, max(0, step - first) / (last - first)) if last > first else 1.0
