"""Compare the accuracies of networks on the same images, with a confidence interval."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import ceil, expm1, floor, log10
from statistics import fmean, pvariance
from typing import NamedTuple, Self

from resnet_recipes.base.text import format_number
from resnet_recipes.run_folder.correct_images import CorrectImages

NORMAL_QUANTILE = 1.959964  # quantile of the normal distribution for a 95% interval
_POWER_FACTOR = 1.43  # factor on the half-width of an interval, for 80% power

#: Multiples of the images or seeds that are tried.
_MULTIPLES = [1.05**power for power in range(200)]


class Confidence(NamedTuple):
    """The ends of a 95% confidence interval, in percent or points."""

    low: float
    high: float


def compute_accuracy_interval(correct: int, images: int) -> Confidence:
    """Return the 95% interval of an accuracy, in percent, over samples of images.

    Uses the score interval (Wilson, 1927, J. Am. Stat. Assoc. 22).
    """
    fraction = correct / images
    extra = NORMAL_QUANTILE**2 / images
    center = (fraction + extra / 2) / (1 + extra)
    half = (fraction * (1 - fraction) * extra + extra**2 / 4) ** 0.5 / (1 + extra)
    return Confidence(100 * (center - half), 100 * (center + half))


class PairedDifference(NamedTuple):
    """The difference between two groups of runs on the same images."""

    images: int
    points: float  # mean accuracy of the first group minus the second, in points
    image_variance: float  # variance of `points` over samples of images, in squared points
    seed_variance: float  # variance of `points` over seeds, in squared points; 0 if unknown
    freedom: int  # degrees of freedom of `seed_variance`; 0 if each image has one run per group
    seeds: int = 1  # maximum runs of an image in one group

    @classmethod
    def of(cls, first: Sequence[CorrectImages], second: Sequence[CorrectImages]) -> Self | None:
        """Compare two groups on the images of both, such as folds; None if they share none.

        For the variance over images, each group gets one more image that only it classifies
        correctly (Bonett and Price, 2012, J. Educ. Behav. Stat. 37). Seeds are assumed to vary
        equally in both groups.
        """
        points = [_collect_points(group) for group in (first, second)]
        shared = points[0].keys() & points[1].keys()
        if not shared:
            return None
        differences: list[float] = []
        for images in shared:
            means = [map(fmean, zip(*group[images], strict=True)) for group in points]
            differences += [a - b for a, b in zip(*means, strict=True)]
        count = len(differences)
        groups = [group[images] for group in points for images in shared]
        counts = [len(runs) for runs in groups]
        freedom = sum(counts) - len(counts)
        squares = sum(len(runs) * pvariance(map(sum, runs)) for runs in groups)
        scale = sum(1 / seeds for seeds in counts) / max(1, freedom) / count**2
        variance = pvariance([*differences, 100.0, -100.0]) / (count + 2)
        return cls(count, fmean(differences), variance, squares * scale, freedom, max(counts))

    @property
    def interval(self) -> Confidence:
        """The 95% interval of `points`, over images and, with several seeds, over seeds.

        Some seed noise is in both variances, so it is often too wide.
        """
        half = self._compute_margin()
        return Confidence(max(-100.0, self.points - half), min(100.0, self.points + half))

    def multiply_to_settle(self, quantity: str) -> float | None:
        """Return the factor on `quantity`, "images" or "seeds", that settles the comparison.

        With that many, the interval excludes zero with 80% power. None if no factor in `_MULTIPLES`
        suffices.
        """
        for times in _MULTIPLES:
            if abs(self.points) > _POWER_FACTOR * self._compute_margin(**{quantity: times}):
                return times
        return None

    def _compute_margin(self, images: float = 1.0, seeds: float = 1.0) -> float:
        """Return the half-width of the interval for multiples of the images and seeds.

        The degrees of freedom are those of Satterthwaite (1946, Biometrics Bull. 2). The quantile
        of Student's t distribution is an approximation by Wallace (1959, Ann. Math. Stat. 30), 4%
        too large for 2 degrees of freedom.
        """
        of_seeds = self.seed_variance / seeds
        total = self.image_variance / images + of_seeds
        inverse = max(1e-9, (of_seeds / total) ** 2 / seeds / max(1, self.freedom))
        z = NORMAL_QUANTILE * (8 + 3 * inverse) / (8 + inverse)
        return (expm1(z**2 * inverse) / inverse * total) ** 0.5


def _round_up(number: float) -> float:
    """Return a number of at least 1 rounded up to a whole number with at most two digits."""
    unit = max(1, 10 ** (floor(log10(number)) - 1))
    return unit * ceil(number / unit)


def describe_pair(pair: str, difference: PairedDifference) -> Iterator[str]:
    """Yield sentences that compare two groups on the same images."""
    low, high = difference.interval
    source = "images and seeds" if difference.freedom else "images"
    yield (
        f"{pair}, the same {difference.images:,} images: {difference.points:+.2f} points, "
        f"95% interval {low:+.2f} to {high:+.2f} over {source}."
    )
    if low * high > 0:
        limit = "" if difference.freedom else " for these networks; other seeds may differ"
        yield f"Settled{limit}."
        return
    yield "Not settled: they may be equally accurate."
    ways = [
        f"{format_number(_round_up(times * getattr(difference, quantity)))} {name}"
        for quantity, name in (("images", "images"), ("seeds", "seeds of each"))
        if (times := difference.multiply_to_settle(quantity))
    ]
    if difference.points:
        way = f"About {' or '.join(ways)}" if ways else "Only more images together with more seeds"
        yield f"{way} would settle a difference of this size."


def _collect_points(group: Sequence[CorrectImages]) -> dict[tuple[str, int], list[list[float]]]:
    """Return the points of each run for each image, 0 or 100, by set of images."""
    points = defaultdict(list)
    for correct in group:
        points[correct.digest, len(correct.flags)].append(
            [100.0 * int(flag) for flag in correct.flags]
        )
    return points
