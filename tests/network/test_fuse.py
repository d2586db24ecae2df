"""Fused operations preserve a network.

Its outputs, parameter names and compatible weights stay the same.
"""

import copy

import pytest
import torch
from torch import nn
from torchvision.models import ResNet, resnet50
from torchvision.models.resnet import Bottleneck

import tests.ops.cpu_operations  # noqa: F401
from resnet_recipes import ops
from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.methods.stochastic_depth import StochasticDepth, fold
from resnet_recipes.network.fuse import (
    FoldedConv2d,
    FusedBatchNorm2d,
    FusedDropExamplesBatchNorm2d,
    FusedMaxPool2d,
    fold_batchnorm,
    fuse,
)
from resnet_recipes.ops import Operations
from tests.shared.tiny_networks import build_narrow_resnet18

FUSED = Operations(**{name: module.fused for name, module in ops.MODULES.items()})


def make_twins(network, *methods):
    torch.manual_seed(0)
    unfused = network(num_classes=10)
    fused = network(num_classes=10)
    fused.load_state_dict(unfused.state_dict())
    for model in (unfused, fused):
        for method in methods:
            method.modify_model(model)
        model.to(torch.float64, memory_format=torch.channels_last)
    fuse(fused, FUSED)
    return unfused, fused


def make_four_bottlenecks(num_classes):
    """Return a small network with the blocks of a ResNet-50, an eighth as wide inside."""
    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes, width_per_group=8)


def build_empty_resnet50():
    """Return a ResNet-50 whose weights have no values."""
    with torch.device("meta"):
        return resnet50()


@pytest.mark.parametrize(("height", "width"), [(32, 6), (2, 8), (33, 6), (6, 33)])
@pytest.mark.parametrize("channels", [3, 1, 4])
def test_folded_first_convolution_matches_the_original(channels, height, width):
    torch.manual_seed(0)
    network = ResNet(Bottleneck, [1, 1, 1, 1], width_per_group=8)
    network.conv1 = nn.Conv2d(channels, 8, 7, stride=2, padding=3).double()
    unfused = copy.deepcopy(network.conv1)
    fuse(network, FUSED)
    assert isinstance(network.conv1, FoldedConv2d)
    x = torch.randn(2, channels, height, width).double().to(memory_format=torch.channels_last)
    outputs = network.conv1(x)
    expected = unfused(x)
    assert outputs.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(outputs, expected)
    upstream = torch.randn_like(outputs)
    outputs.backward(upstream)
    expected.backward(upstream)
    assert torch.allclose(network.conv1.weight.grad, unfused.weight.grad)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (7, 1, 3), (7, 2, 2)])
def test_other_first_convolution_is_not_folded(kernel, stride, padding):
    network = ResNet(Bottleneck, [1, 1, 1, 1], width_per_group=8)
    network.conv1 = nn.Conv2d(3, 64, kernel, stride, padding)
    fuse(network, FUSED)
    assert type(network.conv1) is nn.Conv2d


@pytest.mark.parametrize(
    ("network", "methods", "norms", "dropping"),
    [
        (build_narrow_resnet18, (BlurPool(), StochasticDepth(drop_rate=0.5)), 13, 8),
        (make_four_bottlenecks, (BlurPool(), StochasticDepth(drop_rate=0.5)), 13, 4),
    ],
)
def test_fused_network_matches_outputs_gradients_and_statistics(network, methods, norms, dropping):
    unfused, fused = make_twins(network, *methods)
    for _ in range(2):
        x = torch.randn(2, 3, 33, 33, dtype=torch.float64)
        outputs = []
        x = x.to(memory_format=torch.channels_last)
        for model in (unfused, fused):
            torch.manual_seed(1)
            outputs.append(model(x))
            outputs[-1].square().sum().backward()
        assert torch.allclose(*outputs, rtol=1e-8)
    for (name, parameter), other in zip(
        fused.named_parameters(), unfused.parameters(), strict=True
    ):
        assert torch.allclose(
            parameter.grad, other.grad, rtol=1e-6, atol=1e-8 * float(other.grad.norm())
        ), name
    for name, value in unfused.state_dict().items():
        assert torch.allclose(fused.state_dict()[name], value), name
    kinds = [type(module) for module in fused.modules()]
    assert kinds.count(FusedBatchNorm2d) == norms
    assert kinds.count(FusedDropExamplesBatchNorm2d) == dropping
    expected = unfused.eval()(x)
    assert torch.allclose(fused.eval()(x), expected, rtol=1e-8)
    fold(fused)
    assert torch.allclose(fused(x), expected, rtol=1e-8)


def test_fuse_keeps_keys_and_fuses_norms_and_blocks():
    unfused = build_empty_resnet50()
    model = build_empty_resnet50()
    before = dict(model.named_parameters())
    kinds = [type(module) for module in model.modules()]
    fuse(model, Operations())
    assert [type(module) for module in model.modules()] == kinds  # plain operations change nothing
    fuse(model, FUSED)
    assert list(model.state_dict()) == list(unfused.state_dict())
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    norms = {
        name: norm.relu for name, norm in model.named_modules() if isinstance(norm, nn.BatchNorm2d)
    }
    assert all(isinstance(model.get_submodule(name), FusedBatchNorm2d) for name in norms)
    downsampling = [f"layer{stage}.0.downsample.1" for stage in (1, 2, 3, 4)]
    assert [name for name, relu in norms.items() if not relu] == downsampling
    blocks = [block for stage in (1, 2, 3, 4) for block in model.get_submodule(f"layer{stage}")]
    assert [block.returns_pair for block in blocks] == [True] * 15 + [False]


@pytest.mark.parametrize("stride", [1, 2])
def test_fuse_replaces_only_three_by_three_pools(stride):
    model = nn.Sequential(
        nn.MaxPool2d(3, stride, 1),
        nn.MaxPool2d(3, stride),
        nn.MaxPool2d(2, stride, 1),
        nn.MaxPool2d(3, 3, 1),
        nn.MaxPool2d(3, stride, 1, ceil_mode=True),
        nn.MaxPool2d(3, stride, 1, dilation=2),
        nn.MaxPool2d(3, stride, 1, return_indices=True),
    )
    fuse(model, FUSED)
    assert [type(module) is FusedMaxPool2d for module in model] == [True, *[False] * 6]
    assert model[0].operation is FUSED.max_pool


def test_blurred_pool_calls_the_max_pool_operation():
    model = nn.Sequential(nn.MaxPool2d(3, 2, 1))
    BlurPool().modify_model(model)
    fuse(model, FUSED)
    assert (model[0].take_maxima.func, model[0].take_maxima.keywords) == (
        FUSED.max_pool,
        {"stride": 1},
    )


@pytest.mark.parametrize("blur", [None, BlurPool(), BlurPool(blur_first=False)])
@pytest.mark.parametrize("make", [build_narrow_resnet18, make_four_bottlenecks])
def test_folded_batchnorm_gives_the_same_output(blur, make):
    torch.manual_seed(0)
    model = make(4)
    if blur:
        blur.modify_model(model)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for values in (norm.running_mean, norm.bias.data, norm.weight.data):
                values.normal_(0.5, 0.3)
            norm.running_var.uniform_(0.5, 2)
    model.eval()
    folded = fold_batchnorm(model)
    left = sum(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert (left > 0) == bool(blur and not blur.blur_first)
    images = torch.randn(2, 3, 48, 40)
    with torch.no_grad():
        torch.testing.assert_close(folded(images), model(images), rtol=1e-4, atol=1e-4)
