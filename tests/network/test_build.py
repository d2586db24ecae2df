"""Initial weights, and weights that are cast together.

Figures come from initializers.py of Composer and ResNet-50 of torchvision.
"""

import copy
import math

import pytest
import torch
import torchvision
from torch import nn

from resnet_recipes.backbones import find_classifier
from resnet_recipes.base.model_config import ModelConfig, find_implied_settings
from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.network.build import build_model, cast_by_stage
from tests.shared.checks import is_identical
from tests.shared.tiny_networks import build_narrow_resnet18


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
def test_kaiming_weights_have_fan_in_deviation(resnet50, name, std):
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


def test_init_library_keeps_initialization_of_torchvision(monkeypatch):
    monkeypatch.setattr(torchvision.models, "resnet18", build_narrow_resnet18)
    config = ModelConfig("resnet18", init="library", bn_init="ones")
    torch.manual_seed(3)
    expected = build_narrow_resnet18(10).state_dict()
    assert is_identical(build_model(config, 10, seed=3).state_dict(), expected)


def test_build_model_with_same_seed_gives_same_weights(monkeypatch):
    monkeypatch.setattr(torchvision.models, "resnet18", build_narrow_resnet18)
    first, again, other = (
        build_model(ModelConfig(name="resnet18"), 10, seed).state_dict() for seed in (1, 1, 2)
    )
    assert is_identical(first, again)
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])


@pytest.mark.parametrize(
    "name",
    [
        "timm:test_efficientnet",
        "timm:test_vit",
        "timm:mobilenetv3_small_050",
        "torchvision:mobilenet_v3_small",
        "torchvision:squeezenet1_1",
        "torchvision:resnet18",
    ],
)
def test_new_classifier_has_torch_initialization(name):
    """Uniform within 1 / sqrt(inputs), as in linear layers and 1 x 1 convolutions of torch."""
    if name.startswith("timm"):
        pytest.importorskip("timm")
    config = ModelConfig(
        name, weights="any", **(find_implied_settings(name) or {"init": "library"})
    )
    model = build_model(config, 2, seed=0)
    head = model.get_submodule(find_classifier(model))
    bound = 1 / math.sqrt(head.weight[0].numel())
    for values in (head.weight, head.bias):
        assert values.abs().max() <= bound
    assert head.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.15)
    assert head.bias.abs().max() > 0


IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)).to(
    memory_format=torch.channels_last
)


@pytest.fixture
def networks():
    """Return two networks with the same weights; one casts its weights together."""
    uncast = build_narrow_resnet18(10).to(memory_format=torch.channels_last)
    BlurPool().modify_model(uncast)
    together = copy.deepcopy(uncast)
    cast_by_stage(together, torch.bfloat16)
    return uncast, together


def compute_bfloat16_logits(model, dtype=torch.bfloat16):
    """Return the output of a forward pass in mixed precision."""
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        return model(IMAGES)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_weights_cast_by_stage_give_bit_identical_results(networks, dtype):
    outputs = []
    for model in networks:
        outputs.append(compute_bfloat16_logits(model, dtype))
        outputs[-1].float().square().sum().backward()
    assert torch.equal(*outputs)
    for (name, parameter), other in zip(
        networks[1].named_parameters(), networks[0].parameters(), strict=True
    ):
        assert torch.equal(parameter.grad, other.grad), name
        assert parameter.grad.stride() == parameter.stride()


def test_weights_are_cast_only_during_forward_pass(networks):
    uncast, together = networks
    layer = together.layer1[0].conv1
    seen = []
    layer.register_forward_pre_hook(lambda *_: seen.append(layer.weight.dtype))
    compute_bfloat16_logits(together)
    assert seen == [torch.bfloat16]
    assert layer.weight is dict(together.named_parameters())["layer1.0.conv1.weight"]
    assert list(together.state_dict()) == list(uncast.state_dict())
    with pytest.raises(RuntimeError), torch.autocast("cpu", torch.bfloat16):
        together(torch.zeros(1, 4, 8, 8))
    assert not any("weight" in vars(module) for module in together.modules())


def test_frozen_weights_get_no_gradient(networks):
    for model in networks:
        model.layer1.requires_grad_(False)
        model.layer2[0].conv1.weight.requires_grad_(False)
    outputs = [compute_bfloat16_logits(model) for model in networks]
    assert torch.equal(*outputs)
    outputs[1].sum().backward()
    assert [name for name, p in networks[1].named_parameters() if p.grad is None] == [
        name for name, p in networks[1].named_parameters() if not p.requires_grad
    ]


def test_changed_weights_are_recast_and_leave_copies_alone(networks):
    uncast, together = networks
    compute_bfloat16_logits(together)
    twin = copy.deepcopy(together)
    for model in networks:  # changed without autograd, as by a fused optimizer
        model.layer1[0].conv1.weight.data.zero_()
    assert torch.equal(compute_bfloat16_logits(together), compute_bfloat16_logits(uncast))
    assert not torch.equal(compute_bfloat16_logits(twin), compute_bfloat16_logits(uncast))
