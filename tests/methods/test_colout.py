"""ColOut against its sizes and a selection in the test."""

import pytest
import torch

from resnet_recipes.base.duration import Horizon
from resnet_recipes.methods.base import Batch
from resnet_recipes.methods.colout import ColOut
from tests.methods.inputs import make_batch, make_now
from tests.shared.tables import parse_rows

#: Values that the settings must reject.
WRONG = {"p_row": [-0.1, 1.0], "p_col": [-0.1, 1.0]}

#: Methods whose order decides which pixels remain.
DOES_NOT_COMMUTE = {"random_translation"}


@pytest.mark.parametrize(
    ("share", "sizes"),
    parse_rows(
        """
0.05 | 32:30 64:60 88:83 128:121 160:152 176:167 192:182 224:212
0.8 | 10:2
0.15 | 32:27 176:149 224:190
"""
    ),
)
def test_colout_rounds_sizes_down(share, sizes):
    colout = ColOut(float(share), float(share))
    horizon = Horizon(100, 10)
    for full, left in (map(int, pair.split(":")) for pair in sizes.split()):
        assert colout.size_after(full, 0, horizon) == left


def test_colout_keeps_same_ordered_lines_of_all_images():
    grid = 1000.0 * torch.arange(176).view(-1, 1) + torch.arange(176)
    batch = Batch(
        grid.expand(3, 3, -1, -1).contiguous(memory_format=torch.channels_last),
        torch.zeros(3, 5),
        torch.zeros(3),
    )
    result = ColOut(0.05, 0.05).transform_batch(batch, make_now())
    assert result.images.shape == (3, 3, 167, 167)
    rows = result.images[0, 0, :, 0].div(1000, rounding_mode="floor")
    columns = result.images[0, 0, 0] % 1000
    assert (rows.diff() > 0).all()
    assert (columns.diff() > 0).all()
    assert torch.equal(result.images, (1000 * rows.view(-1, 1) + columns).expand(3, 3, -1, -1))
    assert result.labels is batch.labels
    assert result.targets is batch.targets


def test_colout_rows_and_columns_have_separate_fractions():
    assert ColOut(0.5, 0.25).transform_batch(make_batch(size=32), make_now()).images.shape[-2:] == (
        16,
        24,
    )
