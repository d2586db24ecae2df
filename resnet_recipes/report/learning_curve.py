"""The learning curve of runs on fractions of the images: what more images would bring."""

from collections.abc import Iterable, Iterator, Sequence
from math import exp
from typing import NamedTuple, Self

from resnet_recipes.base.reading import read_json
from resnet_recipes.base.text import digits
from resnet_recipes.report.comparison import SeedGroup
from resnet_recipes.report.paired import Confidence
from resnet_recipes.run_folder import DATA

#: Exponents of the fit: 0.5 is the usual one (Hoiem et al., 2021, arXiv:2010.11029).
_POWERS = [step / 20 for step in range(4, 21)]

_FEWEST = 3  # numbers of images that a curve needs

_Z = 1.959964  # quantile of the normal distribution for an interval of 95 %


class CurvePoint(NamedTuple):
    """Runs on the same number of training images."""

    images: int
    top1_percent: float  # mean over seeds
    variance: float  # of that mean, in points squared: of validation images and of seeds
    pflops: float | None

    @classmethod
    def of(cls, group: SeedGroup, images: int, eval_images: int) -> Self:
        """Return the point of a group with finished runs."""
        top1, seeds = group.mean_top1 or 0.0, len(group.top1)
        error = (eval_images * (1 - top1 / 100) + 1) / (eval_images + 2)  # never 0 or 1
        variance = 1e4 * error * (1 - error) / eval_images + (group.noise or 0.0) ** 2 / seeds
        return cls(images, top1, variance, group.mean("pflops"))


class LearningCurve(NamedTuple):
    """Runs that differ in their number of training images, and in their seeds.

    The error is fitted by a + b n^-c with a, b >= 0, for each c from 0.2 to 1. The gain is the mean
    over these fits, weighted by their likelihood; its interval includes that nobody knows c.
    """

    points: Sequence[CurvePoint]  # ascending numbers of images
    is_longer: bool  # whether twice the images are twice the training

    @property
    def images(self) -> int:
        """The largest number of images."""
        return self.points[-1].images

    @property
    def pflops(self) -> float | None:
        """Operations of training on twice as many images as the largest number."""
        known = self.points[-1].pflops
        return known and known * (2 if self.is_longer else 1)

    @property
    def gain(self) -> tuple[float, Confidence]:
        """Points of top-1 that twice the images would bring, with their interval."""
        fits = [_fit(self.points, power) for power in _POWERS]
        best = min(fit.misfit for fit in fits)
        likelihoods = [exp((best - fit.misfit) / 2) for fit in fits]
        weights = [likelihood / sum(likelihoods) for likelihood in likelihoods]
        mean = sum(weight * fit.gain for weight, fit in zip(weights, fits, strict=True))
        variance = sum(
            weight * (fit.variance + (fit.gain - mean) ** 2)
            for weight, fit in zip(weights, fits, strict=True)
        )
        # the noise is larger than it was taken for if no power fits
        half = _Z * (variance * max(1.0, best / (len(self.points) - 2))) ** 0.5
        return mean, Confidence(mean - half, mean + half)

    def as_dict(self) -> dict[str, object]:
        """Return plain values, for JSON."""
        gain, interval = self.gain
        twice = {"images": 2 * self.images, "gain_points": gain, "interval": list(interval)}
        points = [point._asdict() for point in self.points]
        return {"points": points, "twice": twice | {"pflops": self.pflops}}

    def describe(self) -> str:
        """Return what twice the images would bring, and cost."""
        gain, (low, high) = self.gain
        first, last = self.points[0], self.points[-1]
        cost = f"{self.images:,} more photographs"
        if self.pflops and last.pflops:
            cost += f", and {digits(self.pflops)} PFLOPs of training instead of "
            cost += digits(last.pflops) if self.is_longer else "as many"
        return (
            f"{first.images:,} to {last.images:,} training images: {first.top1_percent:.2f}% to "
            f"{last.top1_percent:.2f}% top-1. Twice as many would bring about {gain:+.2f} points, "
            f"95% interval {low:+.2f} to {high:+.2f}. The price: {cost}."
        )


class _Fit(NamedTuple):
    """The gain by twice the images with one exponent."""

    gain: float
    variance: float
    misfit: float  # chi squared


def _fit(points: Sequence[CurvePoint], power: float) -> _Fit:
    """Fit error = a + b n^-power by weighted least squares; a and b are at least 0."""
    rows = [
        (1 / point.variance, point.images**-power, 100 - point.top1_percent) for point in points
    ]
    total = sum(weight for weight, _, _ in rows)
    mean_x, mean_y = (sum(row[0] * row[k] for row in rows) / total for k in (1, 2))
    slope = sum(w * (x - mean_x) * (y - mean_y) for w, x, y in rows)
    spread = sum(w * (x - mean_x) ** 2 for w, x, _ in rows)
    b = max(0.0, slope / spread)
    a = mean_y - b * mean_x
    if a < 0:
        a, spread = 0.0, sum(w * x * x for w, x, _ in rows)
        b = sum(w * x * y for w, x, y in rows) / spread
    fall = points[-1].images ** -power * (1 - 2**-power)
    misfit = sum(w * (y - a - b * x) ** 2 for w, x, y in rows)
    return _Fit(b * fall, fall**2 / spread, misfit)


def find_learning_curves(groups: Iterable[SeedGroup]) -> Iterator[LearningCurve]:
    """Yield a curve for runs that differ in `data.share` alone, if they have three sizes."""
    series: dict[tuple[object, ...], list[CurvePoint]] = {}
    for group in groups:
        facts = read_json(group.runs[0].folder / DATA, may_be_absent=True)
        images, eval_images = facts.get("train_examples"), facts.get("eval_examples")
        if group.mean_top1 is None or not isinstance(images, int) or not eval_images:
            continue
        own = sorted(item for item in group.settings.items() if item[0] != "data.share")
        point = CurvePoint.of(group, images, eval_images)
        series.setdefault((facts.get("eval_digest"), *own), []).append(point)
    for (_, *own), points in series.items():
        if len(points) >= _FEWEST:
            yield LearningCurve(sorted(points), dict(own).get("max_duration", "").endswith("ep"))
