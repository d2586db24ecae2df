"""The initialisers of the recipes.

Figures from Composer's initializers.py and torchvision's ResNet-50.
"""

import copy
import math

import pytest
import torch
import torchvision
from torch import nn

from resnet_recipes.base.architecture import ModelConfig
from resnet_recipes.methods.base import one_hot
from resnet_recipes.methods.bce_loss import BCELoss
from resnet_recipes.network.build import build_model
from tests.jobs.nursery import narrow_resnet18


@pytest.fixture(scope="module")
def resnet50() -> nn.Module:
    return build_model(ModelConfig(), 1000, seed=0)


@pytest.mark.parametrize(
    ("name", "std"),
    [
        ("conv1", 0.116642),
        ("layer1.0.conv1", 0.176777),
        ("layer4.1.conv2", 0.020833),
        ("fc", 0.03125),
    ],
)
def test_weights_have_the_fan_in_deviation(resnet50, name, std):
    weight = resnet50.get_submodule(name).weight
    fan_in = weight[0].numel()
    assert math.sqrt(2 / fan_in) == pytest.approx(std, rel=1e-4)
    # five standard errors
    assert weight.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * weight.numel()))


def test_batchnorm_weights_are_uniform_and_biases_zero(resnet50):
    norms = [m for m in resnet50.modules() if isinstance(m, nn.BatchNorm2d)]
    weights = torch.cat([m.weight for m in norms])
    assert len(norms) == 53
    assert 0 <= weights.min() < 0.001
    assert 0.999 < weights.max() < 1
    assert weights.mean().item() == pytest.approx(0.5, abs=5 * math.sqrt(1 / 12 / len(weights)))
    assert all((m.bias == 0).all() for m in norms)


def test_first_loss_on_noise_is_near_eight_with_a_recipe_and_in_the_hundreds_with_torchvision(
    resnet50,
):
    recipe = copy.deepcopy(resnet50)
    plain = build_model(ModelConfig(init="library", bn_init="ones"), 1000, seed=0)
    BCELoss().modify_model(recipe)
    noise = torch.randn(8, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    targets = one_hot(torch.arange(8), 1000)
    assert 6 < BCELoss().loss(recipe(noise), targets).mean().item() < 12
    assert BCELoss().loss(plain(noise), targets).mean().item() > 500


def test_torchvision_initialisation_is_left_as_it_is():
    model = build_model(ModelConfig(name="resnet18", init="library", bn_init="ones"), 10, seed=0)
    # fan_out
    assert model.conv1.weight.std().item() == pytest.approx(math.sqrt(2 / (64 * 49)), rel=0.05)
    assert (model.bn1.weight == 1).all()


def test_the_same_seed_gives_the_same_weights(monkeypatch):
    monkeypatch.setattr(torchvision.models, "resnet18", narrow_resnet18)
    first, again, other = (
        build_model(ModelConfig(name="resnet18"), 10, seed).state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])
