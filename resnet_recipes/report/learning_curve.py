"""The learning curve of runs on fractions of the images predicts the gain from more images."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from resnet_recipes.base.reading import read_json
from resnet_recipes.base.text import digits
from resnet_recipes.report.comparison import SeedGroup
from resnet_recipes.run_folder import DATA

if TYPE_CHECKING:
    import numpy as np

#: Exponents of the fit: 0.5 is common (Hoiem et al., 2021, arXiv:2010.11029).
_POWERS = [power / 20 for power in range(4, 21)]

_FEWEST = 3  # minimum image counts for a curve

_Z = 1.959964  # quantile of the normal distribution for a 95% interval


class LearningCurve(NamedTuple):
    """Runs that differ in their number of training images, and in their seeds."""

    images: tuple[int, ...]  # numbers of images, ascending
    top1_percent: tuple[float, ...]  # means over seeds
    seeds: int  # seeds of the size with the fewest runs
    gain_points: float  # predicted top-1 gain from doubling the largest number of images
    gain_error: float  # half-width of its 95% interval
    pflops: float | None  # training compute for the largest number of images
    twice_pflops: float | None  # training compute for twice as many

    def describe(self) -> str:
        """Return what twice the images would bring, and cost."""
        low, high = self.gain_points - self.gain_error, self.gain_points + self.gain_error
        caveat = " The interval excludes seed noise: a size has only one run."
        cost = f"{self.images[-1]:,} more photographs"
        if self.pflops and self.twice_pflops:
            before, after = digits(self.pflops), digits(self.twice_pflops)
            change = "as before" if after == before else f"instead of {before}"
            cost += f", and training takes {after} PFLOPs {change}"
        return (
            f"{self.images[0]:,} to {self.images[-1]:,} training images: "
            f"{self.top1_percent[0]:.2f}% to {self.top1_percent[-1]:.2f}% top-1. Twice as many "
            f"would gain about {self.gain_points:+.2f} points, 95% interval {low:+.2f} to "
            f"{high:+.2f}.{caveat if self.seeds == 1 else ''} The cost: {cost}."
        )


def find_learning_curves(groups: Iterable[SeedGroup]) -> Iterator[LearningCurve]:
    """Yield a curve for runs that differ only in `data.share`, if it has three values."""
    import numpy as np  # help pages do not need it

    series: dict[tuple[Any, ...], list[tuple[int, float, float, SeedGroup]]] = {}
    for group in groups:
        facts = read_json(group.runs[0].folder / DATA, may_be_absent=True)
        match facts, group.mean_top1:
            case {"train_examples": int(count), "eval_examples": int(val)}, float(mean) if val:
                error = (val * (1 - mean / 100) + 1) / (val + 2)  # never 0 or 1
                variance = 1e4 * error * (1 - error) / val
                variance += (group.noise or 0.0) ** 2 / len(group.top1)
                settings = group.settings | {"data.share": ""}
                key = facts.get("eval_digest"), *sorted(settings.items())
                series.setdefault(key, []).append((count, mean, variance, group))
    for points in series.values():
        points.sort(key=lambda point: point[0])
        counts, means, variances, sizes = zip(*points, strict=True)
        if len({*counts}) >= _FEWEST:
            gain = fit_gain(*map(np.array, (counts, means, variances)))
            seeds = min(len(group.top1) for group in sizes)
            pflops = sizes[-1].mean("pflops")
            is_longer = sizes[-1].settings.get("max_duration", "").endswith("ep")
            yield LearningCurve(
                counts, means, seeds, *gain, pflops, pflops and pflops * (1 + is_longer)
            )


def fit_gain(
    images: "np.ndarray", top1: "np.ndarray", variances: "np.ndarray"
) -> tuple[float, float]:
    """Return the top-1 gain from doubling the last number of images, and its error, in points.

    Fits error = a + b n^-c to n images by weighted least squares, for each c from 0.2 to 1. The
    gain is the mean over these fits, weighted by likelihood, because few sizes do not determine c.
    The error is the half-width of the 95% interval, including this uncertainty.
    """
    import numpy as np

    powers = np.array(_POWERS)
    weights, x = 1 / variances[:, None], images[:, None] ** -powers
    total, y = weights.sum(), 100 - top1[:, None]
    off_x, off_y = (value - (weights * value).sum(0) / total for value in (x, y))
    spread = (weights * off_x**2).sum(0)
    slopes = (weights * off_x * off_y).sum(0) / spread
    misfits = (weights * (off_y - slopes * off_x) ** 2).sum(0)  # chi squared
    likelihoods = np.exp((misfits.min() - misfits) / 2)
    likelihoods /= likelihoods.sum()
    fall = x[-1] * (1 - 2**-powers)
    gain = float(likelihoods @ (slopes * fall))
    variance = likelihoods @ (fall**2 / spread + (slopes * fall - gain) ** 2)
    # if no power law fits, the noise is larger than assumed
    return gain, _Z * float(variance * max(1.0, misfits.min() / (len(images) - 2))) ** 0.5
