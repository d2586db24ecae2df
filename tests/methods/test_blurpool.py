"""BlurPool against worked numbers, a convolution with its kernel, and the torchvision network."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import resnet50

from resnet_recipes.methods.blurpool import BlurConv2d, BlurMaxPool2d, BlurPool, ConvBlur2d
from resnet_recipes.methods.module_class import change_class
from tests.methods.inputs import make_network
from tests.ops.cpu_operations import blur_by_definition

#: Values that the settings must reject.
WRONG = {"min_channels": [0]}

MAP = torch.arange(25.0).view(1, 1, 5, 5)


def test_max_pool_is_blurred_before_its_stride():
    pool = nn.MaxPool2d(3, 2, 1)
    change_class(pool, BlurMaxPool2d)
    assert torch.equal(
        pool(MAP)[0, 0], torch.tensor([[4.5, 7.25, 6.0], [12.25, 18.0, 14.25], [12.0, 17.25, 13.5]])
    )


@pytest.mark.parametrize("kernel", [1, 3])
def test_convolution_reads_blurred_input(kernel):
    conv = nn.Conv2d(16, 8, kernel, stride=2, padding=kernel // 2, dtype=torch.float64)
    x = torch.randn(2, 16, 13, 13, dtype=torch.float64)
    expected = conv(blur_by_definition(x))
    change_class(conv, BlurConv2d)
    assert torch.allclose(conv(x), expected, rtol=0, atol=1e-12)  # exact up to the order of a sum


def test_blur_after_convolution_runs_at_full_resolution():
    conv = nn.Conv2d(16, 8, 3, stride=2, padding=1, dtype=torch.float64)
    x = torch.randn(2, 16, 13, 13, dtype=torch.float64)
    expected = blur_by_definition(F.conv2d(x, conv.weight, conv.bias, padding=1), stride=2)
    change_class(conv, ConvBlur2d)
    assert torch.allclose(conv(x), expected, rtol=0, atol=1e-12)


def test_resnet50_has_six_convolutions_and_one_pool_replaced():
    with torch.device("meta"):
        model = resnet50()
    BlurPool().modify_model(model)
    BlurPool().modify_model(model)  # a second call changes nothing
    kinds = BlurConv2d | BlurMaxPool2d
    blurred = {
        name: type(module) for name, module in model.named_modules() if isinstance(module, kinds)
    }
    stages = [f"layer{stage}.0.{part}" for stage in (2, 3, 4) for part in ("conv2", "downsample.0")]
    assert blurred == {"maxpool": BlurMaxPool2d, **dict.fromkeys(stages, BlurConv2d)}
    assert type(model.conv1) is nn.Conv2d


@pytest.mark.parametrize("size", [17, 32, 36])
def test_blurpool_keeps_sizes_and_memory_format(size):
    x = torch.randn(1, 3, size, size).contiguous(memory_format=torch.channels_last)
    plain = make_network()
    blurred = make_network()
    BlurPool().modify_model(blurred)
    shapes = []
    for model in (plain, blurred):
        model.to(memory_format=torch.channels_last)
        features = model.layer3(model.layer2(model.layer1(model.maxpool(model.conv1(x)))))
        shapes.append(features.shape)
        assert features.is_contiguous(memory_format=torch.channels_last)
    assert shapes[0] == shapes[1]
