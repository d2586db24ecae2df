"""SGD against torch's own, one tensor at a time."""

import pytest
import torch

from resnet_recipes.optim import SGD


@pytest.mark.parametrize("nesterov", [False, True])
def test_it_matches_torchs(nesterov, small, gradients):
    ours, theirs = small(), small()
    optimizers = (
        SGD(lr=0.1, momentum=0.9, nesterov=nesterov, weight_decay=1e-3).build(ours),
        torch.optim.SGD(
            theirs.parameters(),
            lr=0.1,
            momentum=0.9,
            nesterov=nesterov,
            weight_decay=1e-3,
            foreach=False,
        ),
    )
    for grads in gradients(ours, 50):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            for p, grad in zip(model.parameters(), grads, strict=True):
                p.grad = grad.clone()
            optimizer.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)


def test_nesterov_needs_momentum():
    assert [problem.key for problem in SGD(nesterov=True, momentum=0.0).problems()] == ["nesterov"]
