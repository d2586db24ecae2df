"""RandomTranslation against the numpy reflection, image by image."""

import numpy as np
import pytest
import torch

from resnet_recipes.methods.random_translation import RandomTranslation
from tests.methods.inputs import make_batch, make_now

WRONG = {"pixels": [0, -1]}


@pytest.mark.parametrize(("pixels", "size"), [(1, 8), (3, 8), (9, 6)])
def test_translated_image_is_window_of_its_reflection(pixels, size):
    batch = make_batch(examples=40, size=size)
    moved = RandomTranslation(pixels=pixels).transform_batch(batch, make_now()).images
    moves = set()
    for before, after in zip(batch.images.numpy(), moved.numpy(), strict=True):
        wide = np.pad(before, ((0, 0), (pixels, pixels), (pixels, pixels)), "reflect")
        corners = np.ndindex(2 * pixels + 1, 2 * pixels + 1)
        moves.add(
            next(
                (top, left)
                for top, left in corners
                if np.array_equal(wide[:, top : top + size, left : left + size], after)
            )
        )
    assert len(moves) > min(20, 2 * pixels)


def test_random_translations_are_uniform_along_both_axes():
    batch = make_batch(examples=5000, size=16)
    ramp = torch.arange(16.0)
    batch = batch._replace(images=(ramp + 100 * ramp[:, None]).expand(5000, 3, 16, 16))
    moved = RandomTranslation(pixels=2).transform_batch(batch, make_now()).images[:, 0, 8, 8]
    down = ((808 - moved) / 100).round()
    right = 808 - moved - 100 * down
    for moves in (down, right):
        values, counts = moves.unique(return_counts=True)
        assert values.tolist() == [-2, -1, 0, 1, 2]
        assert counts.min() > 880
    assert abs(np.corrcoef(down, right)[0, 1]) < 0.05
