"""Binary cross-entropy against its definition and worked numbers."""

import math

import pytest
import torch
from torch import nn

from resnet_recipes.methods.base import encode_one_hot
from resnet_recipes.methods.bce_loss import BCELoss

#: Values that the settings must reject.
WRONG = {"reduction": ["max"], "threshold": [-0.1, 1.0]}

LOGITS = torch.tensor([[2.0, -1.0, 0.0], [0.5, 0.25, -3.0]])
TARGETS = encode_one_hot(torch.tensor([0, 2]), 3)


def test_bce_loss_is_summed_over_classes():
    assert BCELoss().loss(LOGITS, TARGETS).mean().item() == pytest.approx(2.990970317, abs=1e-6)
    assert BCELoss().loss(LOGITS, TARGETS * 0.9 + 0.1 / 3).mean().item() == pytest.approx(
        2.961803707, abs=1e-6
    )

    # computed in float32: these logits are exact in bfloat16
    losses = BCELoss().loss(LOGITS.to(torch.bfloat16), TARGETS)
    assert losses.dtype == torch.float32
    assert losses.mean().item() == pytest.approx(2.990970317, abs=1e-6)


@pytest.mark.parametrize("classes", [10, 1000])
def test_classifier_starts_at_one_over_k_plus_one(classes):
    model = nn.Module()
    model.fc = nn.Linear(8, classes)
    BCELoss().modify_model(model)
    assert torch.allclose(torch.sigmoid(model.fc.bias), torch.full((classes,), 1 / (classes + 1)))


def test_timm_bce_loss_is_mean_over_thresholded_targets():
    logits = torch.randn(4, 5)
    targets = torch.rand(4, 5)
    targets[0] = 0.25
    expected = (
        sum(
            math.log1p(math.exp(-x if t > 0.25 else x))
            for x, t in zip(logits.flatten().tolist(), targets.flatten().tolist(), strict=True)
        )
        / 20
    )
    timms = BCELoss(reduction="mean", threshold=0.25, bias_init=False)
    assert timms.loss(logits, targets).mean().item() == pytest.approx(expected, rel=1e-5)
    assert not timms.provides("modify_model")
