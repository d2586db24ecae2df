"""MixUp against a pair mixed in the test, and the distribution of its fractions."""

import numpy as np
import pytest
import torch

from resnet_recipes.base.duration import Horizon
from resnet_recipes.methods import mixup
from resnet_recipes.methods.base import Batch, Now, encode_one_hot
from resnet_recipes.methods.mixup import MixUp

#: Values that the settings must reject.
WRONG = {"alpha": [0.0, -1.0]}

#: Methods that move or erase the partner, or smooth its label.
DOES_NOT_COMMUTE = {"random_translation", "random_erasing", "label_smoothing"}


class GivenSamples:
    def __init__(self, fraction: float, order: list[int]):
        self.fraction = fraction
        self.order = np.array(order)

    def beta(self, *_: float) -> float:
        return self.fraction

    def permutation(self, _: int) -> np.ndarray:
        return self.order


def compute_mixup(fraction: float, order: list[int], batch: Batch) -> Batch:
    return MixUp().transform_batch(batch, Now(0, Horizon(1, 1), GivenSamples(fraction, order)))


PAIR = Batch(
    torch.tensor([10.0, 20.0]).view(2, 1, 1, 1),
    encode_one_hot(torch.tensor([0, 1]), 2),
    torch.tensor([0, 1]),
    soft_labels=torch.tensor([[1.0, 0.0], [0.5, 0.5]]),
)


@pytest.mark.parametrize("fraction", [0.3, 0.7])
def test_mixup_mixes_pair_and_own_label_dominates(fraction):
    result = compute_mixup(fraction, [1, 0], PAIR)
    assert result.images.flatten().tolist() == pytest.approx([13, 17])
    assert result.targets.flatten().tolist() == pytest.approx([0.7, 0.3, 0.3, 0.7])
    assert result.labels is PAIR.labels
    assert result.soft_labels.flatten().tolist() == pytest.approx([0.85, 0.15, 0.65, 0.35])


@pytest.mark.parametrize(("alpha", "mean"), [(0.2, 0.1012), (0.25, 0.1186), (1.0, 0.25)])
def test_mixup_weights_have_published_mean_below_half(alpha, mean, monkeypatch):
    shares = []
    monkeypatch.setattr(
        mixup, "mix_labels", lambda batch, order, fraction: shares.append(fraction) or batch
    )
    now = Now(0, Horizon(1, 1), np.random.default_rng(0))
    for _ in range(4_000):
        MixUp(alpha).transform_batch(PAIR, now)
    # two standard errors; the seed is fixed
    assert np.mean(shares) == pytest.approx(mean, abs=0.005)
    assert 0 <= min(shares) < max(shares) <= 0.5
