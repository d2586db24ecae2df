"""LAMB against its formula by hand, and against timm's."""

import pytest
import torch
from torch import Tensor

from resnet_recipes.optim import LAMB


def by_hand(weights: list[Tensor], decays: list[float], steps: list[list[Tensor]], rate: float) -> None:
    """Walk the weights in place; float64, one tensor and one formula at a time."""
    means, squares = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    for t, grads in enumerate(steps, 1):
        norm = torch.cat([g.flatten() for g in grads]).norm()
        for w, decay, g, m, v in zip(weights, decays, grads, means, squares, strict=True):
            g = g / max(norm, 1.0)
            m.copy_(0.9 * m + 0.1 * g)
            v.copy_(0.999 * v + 0.001 * g * g)
            u = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-6) + decay * w
            w -= rate * (w.norm() / u.norm() if decay and w.norm() > 0 and u.norm() > 0 else 1.0) * u


@pytest.fixture(params=[0.01, 10.0], ids=["unclipped", "clipped"])
def walked(request, small, gradients):
    """The weights after 50 steps of ours, with the gradients; one tensor starts at zero."""
    model = small()
    optimizer = LAMB(lr=0.01, weight_decay=0.02).build(model)
    steps = list(gradients(model, 50, scale=request.param))
    start = small()
    for grads in steps:
        for p, grad in zip(model.parameters(), grads, strict=True):
            p.grad = grad.clone()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return start, steps, list(model.parameters())


def test_it_is_the_formula(walked):
    start, steps, ours = walked
    weights = [p.detach().double() for p in start.parameters()]
    by_hand(weights, [0.0 if w.ndim <= 1 else 0.02 for w in weights], [[g.double() for g in grads] for grads in steps],
            0.01)
    for w, p in zip(weights, ours, strict=True):
        torch.testing.assert_close(p.double(), w, rtol=1e-5, atol=1e-6)


def test_it_is_timms(walked):
    lamb = pytest.importorskip("timm.optim.lamb", reason="timm is not installed")
    start, steps, ours = walked
    groups = [{"params": [p for p in start.parameters() if (p.ndim > 1) is decays], "weight_decay": 0.02 * decays}
              for decays in (True, False)]
    optimizer = lamb.Lamb(groups, lr=0.01, betas=(0.9, 0.999), eps=1e-6, max_grad_norm=1.0)
    for grads in steps:
        for p, grad in zip(start.parameters(), grads, strict=True):
            p.grad = grad.clone()
        optimizer.step()
    for p, q in zip(ours, start.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)
