"""Compare the accuracies of networks on the same images, with a confidence interval."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from resnet_recipes.run_folder.hits import Hits

#: Quantile of the normal distribution for a 95% interval, and for 80% power.
_Z, _POWER = 1.959964, 0.841621


class Confidence(NamedTuple):
    """The ends of a 95% confidence interval, in percent or points."""

    low: float
    high: float


def accuracy_interval(correct: int, images: int) -> Confidence:
    """Return the interval of an accuracy, in percent, over samples of images.

    Wilson, 1927, J. Am. Stat. Assoc. 22.
    """
    share, extra = correct / images, _Z**2 / images
    center = (share + extra / 2) / (1 + extra)
    half = (share * (1 - share) * extra + extra**2 / 4) ** 0.5 / (1 + extra)
    return Confidence(100 * (center - half), 100 * (center + half))


class PairedVerdict(NamedTuple):
    """The difference between two groups of seeds on the same images."""

    images: int
    points: float  # mean accuracy of the first group minus the second, in points
    image_variance: float  # of `points`, over samples of images
    seed_variance: float | None  # of `points`, over seeds; None if a group has only one run

    @classmethod
    def of(cls, first: Sequence[Hits], second: Sequence[Hits]) -> Self | None:
        """Compare two groups; None if a group is empty or the images differ.

        For the variance over images, each group gets one more image that only it classifies
        correctly (Bonett and Price, 2012, J. Educ. Behav. Stat. 37).
        """
        import numpy as np  # help pages do not need it

        kinds = {(hits.digest, len(hits.flags)) for hits in (*first, *second)}
        if not (first and second and len(kinds) == 1):
            return None
        one, other = (
            100.0 * np.array([list(map(int, hits.flags)) for hits in group])
            for group in (first, second)
        )
        differences = one.mean(0) - other.mean(0)
        varied = np.append(differences, (100.0, -100.0))
        seed_variance = None
        if min(len(one), len(other)) > 1:
            means = one.mean(1), other.mean(1)
            seed_variance = float(sum(group.var(ddof=1) / len(group) for group in means))
        points, variance = float(differences.mean()), float(varied.var() / len(varied))
        return cls(len(differences), points, variance, seed_variance)

    @property
    def interval(self) -> Confidence:
        """The interval of `points`, over images and, with several seeds, over seeds.

        Some seed noise is in both variances, so it is often too wide: it covers the difference in
        96 to 99% of samples if all seeds are equally accurate. It is too narrow if the noise of two
        seeds dominates: 85% with 1,000 images and seeds that differ by 3 points (simulated).
        """
        half = _Z * (self.image_variance + (self.seed_variance or 0.0)) ** 0.5
        return Confidence(self.points - half, self.points + half)

    @property
    def is_settled(self) -> bool:
        """Whether the interval excludes 0."""
        low, high = self.interval
        return low > 0 or high < 0

    @property
    def images_to_settle(self) -> float | None:
        """The number of images that would settle this difference with 80% power."""
        times = self._find_factor(self.image_variance, self.seed_variance or 0.0)
        return times and times * self.images

    @property
    def seeds_to_settle(self) -> float | None:
        """How many times as many seeds would settle this difference with 80% power."""
        return self._find_factor(self.seed_variance or 0.0, self.image_variance)

    def _find_factor(self, variance: float, rest: float) -> float | None:
        """Return the factor by which `variance` is too large, or None if `rest` alone is."""
        needed = (self.points / (_Z + _POWER)) ** 2
        return variance / (needed - rest) if needed > rest else None
