"""Which classes a network confuses: the results of an evaluation, by class."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class ClassResult(NamedTuple):
    """The images of one class."""

    label: int
    images: int
    correct: int

    @property
    def top1_percent(self) -> float:
        """Share of the images that were classified correctly."""
        return 100 * self.correct / self.images


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
        labels, best = self.pairs
        images = labels.bincount()
        correct = labels[labels == best].bincount(minlength=int(labels.max()) + 1)
        found = [
            ClassResult(label, *counts)
            for label, counts in enumerate(zip(images.tolist(), correct.tolist(), strict=True))
            if counts[0]
        ]
        return sorted(found, key=lambda result: (result.top1_percent, result.label))

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
