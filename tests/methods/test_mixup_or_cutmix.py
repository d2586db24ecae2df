"""The switch between MixUp and CutMix, and the partners as in timm and torchvision."""

import pytest
import torch

from resnet_recipes.methods.mixup_or_cutmix import MixUpOrCutMix
from tests.methods.inputs import make_batch, make_now

#: Values that the settings must reject.
WRONG = {"mixup_alpha": [0.0], "cutmix_alpha": [-1.0], "switch": [-0.1, 1.1], "partner": ["random"]}

#: Methods that change the place or size of the box, or move or erase the partner.
DOES_NOT_COMMUTE = {"random_translation", "colout", "progressive_resizing", "random_erasing"}


@pytest.mark.parametrize(
    ("partner", "order"),
    [("flipped", [7, 6, 5, 4, 3, 2, 1, 0]), ("rolled", [7, 0, 1, 2, 3, 4, 5, 6])],
)
@pytest.mark.parametrize("switch", [0.0, 1.0])
def test_mixed_images_and_targets_come_from_the_partner(partner, order, switch):
    batch = make_batch()
    result = MixUpOrCutMix(cutmix_alpha=1.0, switch=switch, partner=partner).transform_batch(
        batch, make_now(4)
    )
    share = result.targets[0, batch.labels[order[0]]].item()
    assert 0 < share < 1
    torch.testing.assert_close(result.targets, batch.targets.lerp(batch.targets[order], share))
    if switch:
        from_partner = (result.images == batch.images[order]).all(dim=1)
        assert from_partner.float().mean().item() == pytest.approx(share)
        assert ((result.images == batch.images).all(dim=1) | from_partner).all()
    else:
        torch.testing.assert_close(result.images, batch.images.lerp(batch.images[order], share))


def test_mixup_and_cutmix_each_run_half_the_steps():
    batch = make_batch(examples=4, size=8)
    pasted = 0
    for step in range(200):
        result = MixUpOrCutMix(mixup_alpha=50.0, cutmix_alpha=50.0).transform_batch(
            batch, make_now(step)
        )
        # mixup creates new values
        pasted += torch.isin(result.images, batch.images).all().item()
    assert 60 < pasted < 140
