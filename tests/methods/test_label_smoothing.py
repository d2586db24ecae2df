"""Label smoothing against its formula, alone and before MixUp."""

import numpy as np
import pytest
import torch

from resnet_recipes.base.duration import Horizon
from resnet_recipes.methods.base import Batch, Now, encode_one_hot
from resnet_recipes.methods.label_smoothing import LabelSmoothing
from tests.shared.tables import parse_rows

#: Values that the settings must reject.
WRONG = {"smoothing": [-0.1, 1.1]}

NOW = Now(0, Horizon(10, 5), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("classes", "smoothing", "on", "off"),
    parse_rows(
        """
1000 | 0.08 | 0.92008 | 8e-5
1000 | 0.1 | 0.9001 | 1e-4
1000 | 0.13 | 0.87013 | 1.3e-4
10 | 0.1 | 0.91 | 0.01
"""
    ),
)
def test_smoothing_leaves_published_target_of_true_class(classes, smoothing, on, off):
    others = torch.arange(int(classes)) != 3
    batch = Batch(torch.zeros(1), encode_one_hot(torch.tensor([3]), int(classes)), torch.zeros(1))
    (row,) = LabelSmoothing(float(smoothing)).transform_batch(batch, NOW).targets
    assert row[3].item() == pytest.approx(float(on), abs=1e-7)
    assert torch.allclose(row[others], torch.tensor(float(off)))
