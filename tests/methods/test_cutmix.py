"""CutMix against the areas and pixels of its boxes."""

import pytest
import torch

from resnet_recipes.methods.base import encode_one_hot
from resnet_recipes.methods.cutmix import CutMix
from tests.methods.inputs import make_batch, make_now

#: Values that the settings must reject.
WRONG = {"alpha": [0.0, -1.0]}

#: Methods that change the place or size of the box, move or erase the partner, or smooth its label.
DOES_NOT_COMMUTE = {
    "random_translation",
    "colout",
    "progressive_resizing",
    "random_erasing",
    "label_smoothing",
}


def test_cutmix_targets_follow_area_of_box():
    areas = set()
    for step in range(30):
        batch = make_batch(examples=6, size=20, classes=6)
        result = CutMix().transform_batch(batch, make_now(step))
        changed = (result.images != batch.images).any(1)
        moved = changed.flatten(1).any(1)
        if not moved.any():
            continue
        box = changed[moved][0]
        assert all(torch.equal(other, box) for other in changed[moved])
        rows = box.any(1)
        columns = box.any(0)
        assert torch.equal(box, rows.view(-1, 1) & columns)
        share = box.sum().item() / 400
        label_weights = result.targets.gather(1, batch.labels.view(-1, 1))
        assert torch.allclose(label_weights[moved], torch.tensor(1 - share))
        assert torch.allclose(label_weights[~moved], torch.tensor(1.0))
        partners = (result.targets - 2 * encode_one_hot(batch.labels, 6)).argmax(1)[moved]
        assert torch.equal(result.images[moved][..., box], batch.images[partners][..., box])
        areas.add(share)
    assert len(areas) > 20


@pytest.mark.parametrize("size", [7, 8, 224])
def test_cutmix_box_is_centered_as_in_paper(size):
    for step in range(20):
        batch = make_batch(examples=2, size=size, classes=2)
        rng = make_now(step).rng
        length = int(size * rng.beta(1.0, 1.0) ** 0.5)
        edges = [
            min(max(center + sign * (length // 2), 0), size)
            for center in rng.integers(size, size=2)
            for sign in (-1, 1)
        ]
        area = (edges[1] - edges[0]) * (edges[3] - edges[2])
        pasted = (CutMix().transform_batch(batch, make_now(step)).images != batch.images).any(1)
        assert pasted[0].sum() in (0, area)  # 0: the permutation did not exchange the pair
