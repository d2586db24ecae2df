"""LAMB against timm's."""

import pytest
import torch

from resnet_recipes.methods.optimizers import LAMB


@pytest.mark.parametrize("scale", [0.01, 10.0], ids=["unclipped", "clipped"])
def test_lamb_matches_timm(scale, small, gradients):
    peer = pytest.importorskip("timm.optim.lamb", reason="timm is not installed")
    ours, theirs = small(), small()
    groups = [
        {
            "params": [p for p in theirs.parameters() if (p.ndim > 1) is decays],
            "weight_decay": 0.02 * decays,
        }
        for decays in (True, False)
    ]
    optimizers = (
        LAMB(lr=0.01, weight_decay=0.02).build(ours),
        peer.Lamb(groups, lr=0.01, betas=(0.9, 0.999), eps=1e-6, max_grad_norm=1.0),
    )
    for grads in gradients(ours, 50, scale=scale):
        for model in (ours, theirs):
            for p, grad in zip(model.parameters(), grads, strict=True):
                p.grad = grad.clone()
        torch.nn.utils.clip_grad_norm_(ours.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)
