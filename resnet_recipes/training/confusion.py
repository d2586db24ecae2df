"""Which classes a network confuses: the results of an evaluation, by class."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor


class ClassResult(NamedTuple):
    """The images of one class."""

    label: int
    images: int
    correct: int
    taken: int  # images of any class that were taken for this one

    @property
    def top1_percent(self) -> float:
        """Share of the images that were classified correctly, which is the class's recall."""
        return 100 * self.correct / self.images if self.images else 0.0

    @property
    def precision_percent(self) -> float:
        """Share of what was taken for this class that is of it; 0 if nothing was."""
        return 100 * self.correct / self.taken if self.taken else 0.0

    @property
    def f1_percent(self) -> float:
        """The harmonic mean of precision and recall."""
        return 200 * self.correct / (self.images + self.taken)


class Means(NamedTuple):
    """A mean over classes of each figure, in percent."""

    precision: float
    recall: float
    f1: float

    @classmethod
    def of(cls, classes: Sequence[ClassResult], weights: Sequence[int]) -> Self:
        """Return the weighted means."""
        total = sum(weights)
        rows = [(row.precision_percent, row.top1_percent, row.f1_percent) for row in classes]
        return cls(
            *(
                sum(weight * value for weight, value in zip(weights, values, strict=True)) / total
                for values in zip(*rows, strict=True)
            )
        )


class Mistake(NamedTuple):
    """Images of one class that were taken for another."""

    label: int
    taken_for: int
    images: int


class Confusion:
    """Counts (true class, best class) of every image.

    A few bytes per image, whatever the number of classes.
    """

    def __init__(self, parts: Iterable[Tensor] = ()):
        """Start with the `pairs` of other instances."""
        self._pairs = list(parts)

    @property
    def pairs(self) -> Tensor:
        """The class and the best class of every image, int64 [2, N], on the CPU."""
        if self._pairs:
            return torch.cat(self._pairs, 1).cpu()
        return torch.empty(2, 0, dtype=torch.int64)

    def see(self, best: Tensor, labels: Tensor) -> None:
        """Add a batch: classes [N, 5], best first, and labels [N]. Does not wait for the device."""
        self._pairs.append(torch.stack([labels, best[:, 0]]))

    def classes(self) -> list[ClassResult]:
        """Return every class that has images, the worst first."""
        found = [result for result in self._classes() if result.images]
        return sorted(found, key=lambda result: (result.top1_percent, result.label))

    @property
    def balanced_percent(self) -> float:
        """Balanced accuracy: the mean over all classes with images of the share that was right."""
        found = self.classes()
        return sum(result.top1_percent for result in found) / len(found)

    def means(self) -> dict[str, Means]:
        """Return the means over classes: `macro` counts all alike, `weighted` by their images.

        As in scikit-learn, over all classes that have images or were named.
        """
        found = list(self._classes())
        return {
            "macro": Means.of(found, [1] * len(found)),
            "weighted": Means.of(found, [result.images for result in found]),
        }

    def _classes(self) -> Iterator[ClassResult]:
        """Yield every class that has images or was named, in the order of labels."""
        labels, best = self.pairs
        most = int(self.pairs.max()) + 1
        counts = (
            found.bincount(minlength=most).tolist()
            for found in (labels, labels[labels == best], best)
        )
        for label, (images, correct, taken) in enumerate(zip(*counts, strict=True)):
            if images or taken:
                yield ClassResult(label, images, correct, taken)

    def mistakes(self, most: int) -> list[Mistake]:
        """Return at most `most` confusions, the most frequent first."""
        return sorted(
            self._wrong(), key=lambda wrong: (-wrong.images, wrong.label, wrong.taken_for)
        )[:most]

    def _wrong(self) -> Iterator[Mistake]:
        pairs, counts = self.pairs.unique(dim=1, return_counts=True)
        for (label, best), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
            if label != best:
                yield Mistake(label, best, count)
