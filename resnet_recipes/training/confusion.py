"""Which classes a network confuses: the results of an evaluation, by class."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import torch

from resnet_recipes.training.outcomes import Outcomes


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


class Cell(NamedTuple):
    """Images of one class that were taken for one class."""

    label: int
    taken_for: int
    images: int


class Confusion:
    """Counts (true class, best class) of the images of an evaluation."""

    def __init__(self, outcomes: Outcomes):
        self._labels, self._best = outcomes.labels, outcomes.best

    def classes(self) -> list[ClassResult]:
        """Return every class that has images, the worst first."""
        found = [result for result in self._classes() if result.images]
        return sorted(found, key=lambda result: (result.top1_percent, result.label))

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
        labels, best = self._labels, self._best
        most = int(torch.cat([labels, best]).max()) + 1
        counts = (
            found.bincount(minlength=most).tolist()
            for found in (labels, labels[labels == best], best)
        )
        for label, (images, correct, taken) in enumerate(zip(*counts, strict=True)):
            if images or taken:
                yield ClassResult(label, images, correct, taken)

    def mistakes(self, most: int) -> list[Cell]:
        """Return at most `most` confusions, the most frequent first."""
        wrong = [cell for cell in self.cells() if cell.label != cell.taken_for]
        return sorted(wrong, key=lambda cell: (-cell.images, cell.label, cell.taken_for))[:most]

    def cells(self) -> Iterator[Cell]:
        """Yield the cells of the confusion matrix that are not empty."""
        pairs, counts = torch.stack([self._labels, self._best]).unique(dim=1, return_counts=True)
        for (label, best), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
            yield Cell(label, best, count)
