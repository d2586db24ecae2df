"""What an evaluation found for each of its images."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

#: Bins of the expected calibration error, as in its paper.
_BINS = 15


class Outcomes(NamedTuple):
    """What a network made of some images, in the order of the images; a few bytes for each."""

    labels: Tensor  # int64 [N]
    best: Tensor  # int64 [N], the most probable class
    probabilities: Tensor  # float32 [N], of `best`
    losses: Tensor  # float32 [N], softmax cross-entropy in nats

    @classmethod
    def joined(cls, batches: Sequence[Self]) -> Self:
        """Return the images of all batches, one after the other, on the CPU."""
        if not batches:  # fewer images than ranks
            none = torch.empty(0, dtype=torch.int64)
            return cls(none, none, none.float(), none.float())
        return cls(*(torch.cat(parts).cpu() for parts in zip(*batches, strict=True)))

    @classmethod
    def interleaved(cls, ranks: Sequence[Self]) -> Self:
        """Return the images of all ranks, of which rank r has r, r + number of ranks, ..."""
        whole = [torch.cat(parts) for parts in zip(*ranks, strict=True)]
        for rank, part in enumerate(ranks):
            for field, values in zip(whole, part, strict=True):
                field[rank :: len(ranks)] = values
        return cls(*whole)

    @property
    def calibration_error_percent(self) -> float:
        """How far probabilities are from the share that is right: expected calibration error.

        The mean over 15 equal bins of probability, weighted by their images, of the difference
        between mean probability and accuracy. Guo et al., 2017, arXiv:1706.04599.
        """
        probabilities = self.probabilities.double()
        bins = (probabilities * _BINS).ceil().long().clamp(1, _BINS) - 1
        gaps = probabilities - (self.best == self.labels).double()
        return 100 * float(gaps.new_zeros(_BINS).index_add(0, bins, gaps).abs().sum()) / len(gaps)

    def most_wrong(self, most: int) -> list[int]:
        """Return at most `most` images that were classified wrongly, the most confident first."""
        wrong = (self.best != self.labels).nonzero().flatten()
        order = self.probabilities[wrong].argsort(descending=True, stable=True)
        return wrong[order][:most].tolist()
