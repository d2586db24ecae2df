"""DecoupledSGDW against vectors computed from Composer's optim/decoupled_weight_decay.py (v0.7.1), and against torch's SGD."""

import pytest
import torch
from torch import nn

from resnet_recipes.config import OptimizerConfig
from resnet_recipes.optim.build import build_optimizer


def walk(rates: list[float], gradients: list[float], **settings) -> tuple[list[float], list[float]]:
    """Return the weight and the momentum of a single weight of 1 after each step."""
    model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.ones_(model.weight)
    optimizer = build_optimizer(model, OptimizerConfig(lr=0.1, **settings))
    weights, momenta = [], []
    for rate, gradient in zip(rates, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        model.weight.grad = torch.full_like(model.weight, gradient)
        optimizer.step()
        weights.append(model.weight.item())
        momenta.append(optimizer.state[model.weight]["momentum_buffer"].item())
    return weights, momenta


def test_decoupled_sgdw_gives_the_published_vector():
    weights, momenta = walk([0.1, 0.1, 0.1], [0.5, 0.25, -1], momentum=0.875, weight_decay=0.01)
    assert weights == pytest.approx([0.94, 0.86185, 0.89307525], abs=1e-12)
    assert momenta == pytest.approx([0.5, 0.6875, -0.3984375], abs=1e-12)


def test_decay_follows_the_shape_of_the_rate():
    weights, momenta = walk([0.1, 0.05, 0.0], [0.5, 0.25, -1], momentum=0.875, weight_decay=0.01)
    assert weights == pytest.approx([0.94, 0.900925, 0.900925], abs=1e-12)
    assert momenta[-1] == pytest.approx(-0.3984375)     # a rate of 0 moves no weight, but the momentum fills


def test_coupled_sgd_gives_the_published_vector():
    weights, _ = walk([0.1, 0.1, 0.1], [0.5, 0.25, -1], name="sgd", momentum=0.875, weight_decay=0.01)
    assert weights == pytest.approx([0.949, 0.878426, 0.915795], abs=1e-6)


def test_without_decay_it_is_torch_sgd():
    torch.manual_seed(0)
    ours, theirs = nn.Linear(7, 5), nn.Linear(7, 5)
    theirs.load_state_dict(ours.state_dict())
    optimizers = (build_optimizer(ours, OptimizerConfig(lr=0.3, weight_decay=0.0)),
                  torch.optim.SGD(theirs.parameters(), lr=0.3, momentum=0.875, fused=False, foreach=False))
    for _ in range(10):
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)      # the fused kernel may contract a multiply and an add


def test_a_parameter_without_gradient_is_left_alone():
    model = nn.Linear(2, 2)
    optimizer = build_optimizer(model, OptimizerConfig(lr=0.1, weight_decay=0.5))
    before = model.bias.clone()
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    assert torch.equal(model.bias, before)


def test_the_peak_rate_and_the_momentum_survive_a_checkpoint():
    model = nn.Linear(2, 2)
    optimizer = build_optimizer(model, OptimizerConfig(lr=0.1, weight_decay=0.01))
    optimizer.param_groups[0]["lr"] = 0.03
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    again = build_optimizer(model, OptimizerConfig(lr=0.7, weight_decay=0.5))
    again.load_state_dict(optimizer.state_dict())
    assert again.param_groups[0]["initial_lr"] == 0.1
    assert again.param_groups[0]["decoupled_decay"] == 0.01
    assert torch.equal(again.state[model.weight]["momentum_buffer"], optimizer.state[model.weight]["momentum_buffer"])
