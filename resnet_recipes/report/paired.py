"""Compare the accuracies of two networks on the same images, with a confidence interval."""

from math import ceil, exp, lgamma, log
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
    """The comparison of two networks on the same images."""

    images: int
    first_only: int  # images that only the first network classifies correctly
    second_only: int

    @classmethod
    def of(cls, first: Hits, second: Hits) -> Self | None:
        """Compare two networks; None if their images differ."""
        if (first.digest, len(first.flags)) != (second.digest, len(second.flags)):
            return None
        pairs = list(zip(first.flags, second.flags, strict=True))
        return cls(len(pairs), pairs.count(("1", "0")), pairs.count(("0", "1")))

    @property
    def points(self) -> float:
        """The accuracy of the first network minus the second, in points."""
        return 100 * (self.first_only - self.second_only) / self.images

    @property
    def interval(self) -> Confidence:
        """The interval of `points`. Bonett and Price, 2012, J. Educ. Behav. Stat. 37."""
        images = self.images + 2
        first, second = (self.first_only + 1) / images, (self.second_only + 1) / images
        half = _Z * ((first + second - (first - second) ** 2) / images) ** 0.5
        return Confidence(100 * (first - second - half), 100 * (first - second + half))

    @property
    def p(self) -> float:
        """The exact two-sided p-value of McNemar's test, 1947, Psychometrika 12."""
        count = self.first_only + self.second_only
        terms = (
            exp(lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1) - count * log(2))
            for k in range(min(self.first_only, self.second_only) + 1)
        )
        return min(1.0, 2 * sum(terms))

    @property
    def is_settled(self) -> bool:
        """Whether the difference is significant: p below 5%."""
        return self.p < 0.05

    @property
    def images_to_settle(self) -> int | None:
        """The number of images that would make this difference significant with 80% power.

        None if there is no difference. Connor, 1987, Biometrics 43.
        """
        if self.first_only == self.second_only:
            return None
        discordant = (self.first_only + self.second_only) / self.images
        gap = abs(self.points) / 100
        return ceil((_Z * discordant**0.5 + _POWER * (discordant - gap**2) ** 0.5) ** 2 / gap**2)
