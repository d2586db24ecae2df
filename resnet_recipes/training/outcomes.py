"""Results of an evaluation by image and by class."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

#: Bins of the expected calibration error, as in its paper.
_BINS = 15


class Outcomes(NamedTuple):
    """Predictions for some images, in image order; 24 bytes per image."""

    labels: Tensor  # int64 [N]
    predicted: Tensor  # int64 [N], the most probable class
    probabilities: Tensor  # float32 [N], the probability of `predicted`
    losses: Tensor  # float32 [N], softmax cross-entropy in nats

    @classmethod
    def concatenate(cls, batches: Sequence[Self]) -> Self:
        """Return the outcomes of all batches, one after the other, on the CPU."""
        if not batches:  # fewer images than ranks
            empty = torch.empty(0, dtype=torch.int64)
            return cls(empty, empty, empty.float(), empty.float())
        return cls(*(torch.cat(parts).cpu() for parts in zip(*batches, strict=True)))

    @classmethod
    def interleave(cls, ranks: Sequence[Self]) -> Self:
        """Return the outcomes of all ranks; rank r has images r, r + number of ranks, ..."""
        merged = [torch.cat(parts) for parts in zip(*ranks, strict=True)]
        for rank, part in enumerate(ranks):
            for field, values in zip(merged, part, strict=True):
                field[rank :: len(ranks)] = values
        return cls(*merged)

    @property
    def calibration_error_percent(self) -> float:
        """The expected calibration error (ECE), in percent.

        The mean absolute difference between mean probability and accuracy over 15 bins of equal
        width, weighted by the number of images. Guo et al., 2017, arXiv:1706.04599.
        """
        probabilities = self.probabilities.double()
        bins = (probabilities * _BINS).ceil().long().clamp(1, _BINS) - 1
        gaps = probabilities - (self.predicted == self.labels).double()
        return 100 * float(gaps.new_zeros(_BINS).index_add(0, bins, gaps).abs().sum()) / len(gaps)

    def find_confident_errors(self, limit: int) -> list[int]:
        """Return the positions of at most `limit` misclassified images, most confident first."""
        wrong = (self.predicted != self.labels).nonzero().flatten()
        order = self.probabilities[wrong].argsort(descending=True, stable=True)
        return wrong[order][:limit].tolist()


class ClassResult(NamedTuple):
    """Results of one class."""

    label: int
    images: int
    correct: int
    # fraction of the predictions of this class that are correct; 0 without any
    precision_percent: float
    # fraction of its images that were classified correctly; 0 without any
    recall_percent: float
    f1_percent: float  # harmonic mean of precision and recall


class Means(NamedTuple):
    """Means over classes, in percent."""

    precision: float
    recall: float
    f1: float


class ConfusionCell(NamedTuple):
    """The number of images with one true class and one predicted class."""

    label: int
    predicted: int
    images: int


class Confusion:
    """Counts of (true class, predicted class) over the images of an evaluation."""

    def __init__(self, outcomes: Outcomes):
        self._labels, self._predicted = outcomes.labels, outcomes.predicted

    def classes(self) -> list[ClassResult]:
        """Return every class that has images, the worst first."""
        results = self._iterate_classes()
        return sorted(results, key=lambda result: (result.recall_percent, result.label))

    def means(self) -> dict[str, Means]:
        """Return the means over classes: unweighted (`macro`) or by number of images (`weighted`).

        Classes without images do not count, so the mean of recalls is the balanced accuracy.
        """
        results = list(self._iterate_classes())
        rows = [row[3:] for row in results]
        images = [row.images for row in results]
        return {
            "macro": Means(*np.average(rows, axis=0).tolist()),
            "weighted": Means(*np.average(rows, axis=0, weights=images).tolist()),
        }

    def _iterate_classes(self) -> Iterator[ClassResult]:
        """Yield every class that has images, in the order of labels."""
        labels, predicted_labels = self._labels, self._predicted
        num_classes = int(torch.cat([labels, predicted_labels]).max()) + 1
        counts = (
            values.bincount(minlength=num_classes).tolist()
            for values in (labels, labels[labels == predicted_labels], predicted_labels)
        )
        for label, (images, correct, predicted) in enumerate(zip(*counts, strict=True)):
            if images:
                precision, recall = (100 * correct / max(1, count) for count in (predicted, images))
                f1 = 200 * correct / (images + predicted)
                yield ClassResult(label, images, correct, precision, recall, f1)

    def mistakes(self, limit: int) -> list[ConfusionCell]:
        """Return at most `limit` confusions, the most frequent first."""
        wrong = [cell for cell in self.cells() if cell.label != cell.predicted]
        return sorted(wrong, key=lambda cell: (-cell.images, cell.label, cell.predicted))[:limit]

    def cells(self) -> Iterator[ConfusionCell]:
        """Yield the nonempty cells of the confusion matrix."""
        pairs, counts = torch.stack([self._labels, self._predicted]).unique(
            dim=1, return_counts=True
        )
        for (label, predicted), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
            yield ConfusionCell(label, predicted, count)
