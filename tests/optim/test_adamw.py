"""AdamW against torch's own, one tensor at a time."""

import torch

from resnet_recipes.optim import AdamW


def test_it_matches_torchs_with_no_decay_parameters_exempt(small, gradients):
    ours, theirs = small(), small()
    names = dict(theirs.named_parameters())
    groups = [
        {
            "params": [p for name, p in names.items() if ("bn" in name) is spared],
            "weight_decay": 0.0 if spared else 0.05,
        }
        for spared in (False, True)
    ]
    optimizers = (
        AdamW(lr=0.01, weight_decay=0.05, no_decay="bn_in_name").build(ours),
        torch.optim.AdamW(groups, lr=0.01, foreach=False, fused=False),
    )
    for grads in gradients(ours, 50):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            for p, grad in zip(model.parameters(), grads, strict=True):
                p.grad = grad.clone()
            optimizer.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)
