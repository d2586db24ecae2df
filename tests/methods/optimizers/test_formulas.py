"""Every optimizer against its formula for one tensor, in fifty steps with changing lr."""

from math import cos, pi

import pytest
import torch

from resnet_recipes.methods.optimizers import LAMB, LARS, OPTIMIZERS, SGD, AdamW, DecoupledSGDW
from tests.methods.inputs import make_gradients, make_policy_network

PEAK, DECAY, STEPS = 0.3, 0.02, 50

# Each updates a weight `w` with a gradient `g`; `m` and `v` are its state, `t` counts from 1.


def sgd(w, g, m, v, t, rate, decay):
    """Take a step of torch.optim.SGD: the learning rate is outside the momentum."""
    m.copy_(0.875 * m + g + decay * w)
    w -= rate * m


def nesterov(w, g, m, v, t, rate, decay):
    """Take a step of SGD with Nesterov momentum."""
    m.copy_(0.875 * m + g + decay * w)
    w -= rate * (g + decay * w + 0.875 * m)


def decoupled_sgdw(w, g, m, v, t, rate, decay):
    """Take a step of SGD with decoupled weight decay, relative to the peak learning rate."""
    m.copy_(0.875 * m + g)
    w *= 1 - rate / PEAK * decay
    w -= rate * m


def adam(g, m, v, t, eps):
    """Update both averages, and return the update of Adam."""
    m.copy_(0.9 * m + 0.1 * g)
    v.copy_(0.999 * v + 0.001 * g * g)
    return m / (1 - 0.9**t) / ((v / (1 - 0.999**t)).sqrt() + eps)


def adamw(w, g, m, v, t, rate, decay):
    w *= 1 - rate * decay
    w -= rate * adam(g, m, v, t, 1e-8)


def lamb(w, g, m, v, t, rate, decay):
    u = adam(g, m, v, t, 1e-6) + decay * w
    w -= rate * (w.norm() / u.norm() if decay and w.norm() > 0 and u.norm() > 0 else 1.0) * u


def lars(w, g, m, v, t, rate, decay):
    """Take a step of LARS: the learning rate is inside the momentum."""
    trust = 1.0
    if decay and w.norm() > 0 and g.norm() > 0:
        trust = 0.001 * w.norm() / (g.norm() + decay * w.norm() + 1e-9)
    m.copy_(0.9 * m + rate * trust * (g + decay * w))
    w -= m


FORMULAS = [
    (SGD(lr=PEAK, weight_decay=DECAY, no_decay="one_dimensional"), sgd),
    (SGD(lr=PEAK, weight_decay=DECAY, no_decay="one_dimensional", nesterov=True), nesterov),
    (DecoupledSGDW(lr=PEAK, weight_decay=DECAY, no_decay="one_dimensional"), decoupled_sgdw),
    (AdamW(lr=PEAK, weight_decay=DECAY, no_decay="one_dimensional"), adamw),
    (LAMB(lr=PEAK, weight_decay=DECAY), lamb),
    (LARS(lr=PEAK, weight_decay=DECAY, eps=1e-9), lars),
]


@pytest.mark.parametrize(
    ("settings", "formula"), FORMULAS, ids=lambda value: getattr(value, "name", "")
)
def test_optimizer_step_matches_its_formula(settings, formula):
    """One tensor starts at zero, and one gradient is zero in the first step.

    Their norms are zero, so no ratio can be computed.
    """
    model = make_policy_network().double()
    torch.nn.init.zeros_(model.fc.weight)
    optimizer = settings.build(model)
    params = list(model.parameters())
    weights = [p.detach().clone() for p in params]
    states = [(torch.zeros_like(w), torch.zeros_like(w)) for w in weights]
    for t, grads in enumerate(make_gradients(model, STEPS), 1):
        rate = PEAK * (1 + cos(pi * t / STEPS)) / 2
        grads = [g.double() for g in grads]
        if t == 1:
            grads[0].zero_()
        for group in optimizer.param_groups:
            group["lr"] = rate
        for p, g in zip(params, grads, strict=True):
            p.grad = g.clone()
        optimizer.step()
        for w, g, state in zip(weights, grads, states, strict=True):
            formula(w, g, *state, t, rate, DECAY if w.ndim > 1 else 0.0)
    for p, w in zip(params, weights, strict=True):
        torch.testing.assert_close(p.detach(), w, rtol=1e-9, atol=1e-12)


def test_every_optimizer_has_a_formula():
    assert {type(settings) for settings, _ in FORMULAS} == set(OPTIMIZERS)
