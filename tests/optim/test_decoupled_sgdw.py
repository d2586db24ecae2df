"""DecoupledSGDW against vectors from Composer's optim/decoupled_weight_decay.py (v0.7.1)."""

import pytest
import torch
from torch import nn

from resnet_recipes.optim import SGD, DecoupledSGDW


def walk(
    settings: SGD, rates: list[float], gradients: list[float]
) -> tuple[list[float], list[float]]:
    """Return the weight and the momentum of a single weight of 1 after each step."""
    model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.ones_(model.weight)
    optimizer = settings.build(model)
    weights, momenta = [], []
    for rate, gradient in zip(rates, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        model.weight.grad = torch.full_like(model.weight, gradient)
        optimizer.step()
        weights.append(model.weight.item())
        momenta.append(optimizer.state[model.weight]["momentum_buffer"].item())
    return weights, momenta


def test_it_gives_the_published_vector():
    weights, momenta = walk(
        DecoupledSGDW(lr=0.1, momentum=0.875, weight_decay=0.01), [0.1, 0.1, 0.1], [0.5, 0.25, -1]
    )
    assert weights == pytest.approx([0.94, 0.86185, 0.89307525], abs=1e-12)
    assert momenta == pytest.approx([0.5, 0.6875, -0.3984375], abs=1e-12)


def test_decay_follows_the_shape_of_the_rate():
    weights, momenta = walk(
        DecoupledSGDW(lr=0.1, momentum=0.875, weight_decay=0.01), [0.1, 0.05, 0.0], [0.5, 0.25, -1]
    )
    assert weights == pytest.approx([0.94, 0.900925, 0.900925], abs=1e-12)
    # a rate of 0 moves no weight, but the momentum fills
    assert momenta[-1] == pytest.approx(-0.3984375)


def test_coupled_sgd_gives_the_published_vector():
    weights, _ = walk(
        SGD(lr=0.1, momentum=0.875, weight_decay=0.01), [0.1, 0.1, 0.1], [0.5, 0.25, -1]
    )
    assert weights == pytest.approx([0.949, 0.878426, 0.915795], abs=1e-6)


def test_the_peak_rate_and_the_momentum_survive_a_checkpoint():
    model = nn.Linear(2, 2)
    optimizer = DecoupledSGDW(lr=0.1, weight_decay=0.01).build(model)
    optimizer.param_groups[0]["lr"] = 0.03
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    again = DecoupledSGDW(lr=0.7, weight_decay=0.5).build(model)
    again.load_state_dict(optimizer.state_dict())
    assert again.param_groups[0]["initial_lr"] == 0.1
    assert again.param_groups[0]["decoupled_decay"] == 0.01
    assert torch.equal(
        again.state[model.weight]["momentum_buffer"],
        optimizer.state[model.weight]["momentum_buffer"],
    )
