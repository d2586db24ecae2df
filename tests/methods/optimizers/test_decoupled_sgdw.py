"""DecoupledSGDW against test vectors from optim/decoupled_weight_decay.py of Composer 0.7.1."""

import pytest
import torch
from torch import nn

from resnet_recipes.methods import optimizers
from resnet_recipes.methods.optimizers import DecoupledSGDW
from tests.methods.inputs import make_policy_network
from tests.shared.tables import parse_rows


@pytest.mark.parametrize(
    ("kind", "rates", "weights", "momenta"),
    parse_rows(
        """
DecoupledSGDW | 0.1 0.1 0.1 | 0.94 0.86185 0.89307525 | 0.5 0.6875 -0.3984375
DecoupledSGDW | 0.1 0.05 0.0 | 0.94 0.900925 0.900925 | 0.5 0.6875 -0.3984375
SGD | 0.1 0.1 0.1 | 0.949 0.878426 0.915795324 | 0.51 0.70574 -0.37369324
"""
    ),
)
def test_decoupled_sgdw_steps_match_composer(kind, rates, weights, momenta):
    """With learning rate 0, weights do not move, but the momentum accumulates."""
    rates, *expected = ([*map(float, cell.split())] for cell in (rates, weights, momenta))
    model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
    nn.init.ones_(model.weight)
    settings = getattr(optimizers, kind)(lr=0.1, momentum=0.875, weight_decay=0.01)
    optimizer = settings.build(model)
    actual = []
    for rate, gradient in zip(rates, [0.5, 0.25, -1], strict=True):
        optimizer.param_groups[0]["lr"] = rate
        model.weight.grad = torch.full_like(model.weight, gradient)
        optimizer.step()
        momentum = optimizer.state[model.weight]["momentum_buffer"]
        actual.append((model.weight.item(), momentum.item()))
    assert [*zip(*actual, strict=True)] == [*map(pytest.approx, expected)]


def test_checkpoint_keeps_peak_rate_and_momentum():
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


def test_backbone_rate_leaves_decay_at_peak_unchanged():
    model = make_policy_network()
    optimizer = DecoupledSGDW(lr=0.1, weight_decay=0.01, backbone_rate=0.25).build(model)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * group["lr_factor"]
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    assert {group["lr_factor"] for group in optimizer.param_groups} == {0.25, 1.0}
    optimizer.step()
    for parameter, old in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), 0.99 * old)
