"""The switch between MixUp and CutMix."""

import pytest
import torch

from resnet_recipes.methods.cutmix import CutMix
from resnet_recipes.methods.mixup import MixUp
from resnet_recipes.methods.mixup_or_cutmix import MixUpOrCutMix

#: Values that the settings must refuse.
WRONG = {"mixup_alpha": [0.0], "cutmix_alpha": [-1.0], "switch": [-0.1, 1.1]}


@pytest.mark.parametrize(("switch", "kind"), [(0.0, MixUp), (1.0, CutMix)])
def test_switch_picks_one_of_the_two(switch, kind, now_at, batch_of):
    now, same = now_at(4), now_at(4)
    same.rng.random()
    result = MixUpOrCutMix(switch=switch).transform_batch(batch_of(), now)
    alpha = 0.2 if kind is MixUp else 1.0
    assert torch.equal(result.images, kind(alpha).transform_batch(batch_of(), same).images)


def test_half_of_the_steps_use_each(now_at, batch_of):
    batch = batch_of(examples=4, side=8)
    pasted = 0
    for step in range(200):
        result = MixUpOrCutMix(mixup_alpha=50.0, cutmix_alpha=50.0).transform_batch(batch, now_at(step))
        pasted += torch.isin(result.images, batch.images).all().item()      # mixup makes values that were not there
    assert 60 < pasted < 140
