"""The arithmetic of training, against torch's own counter."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from resnet_recipes.base.architecture import ModelConfig
from resnet_recipes.estimating.layers import operations
from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network.build import build_model
from resnet_recipes.network.pretrained import freeze
from resnet_recipes.ops.blur import Blurring


@pytest.mark.parametrize(
    ("name", "side", "frozen", "blur"),
    [
        ("resnet18", 64, "none", None),
        ("resnet50", 36, "none", BlurPool()),
        ("resnet18", 52, "none", BlurPool(blur_first=False)),
        ("resnet18", 33, "none", BlurPool(blur_first=False, min_channels=1)),
        ("resnet18", 40, "none", BlurPool(blur_first=False, replace_convs=False)),
        ("resnet50", 40, "stem", None),
        ("resnet18", 40, "layer2", None),
        ("resnet50", 40, "backbone", None),
    ],
)
def test_operations_are_those_that_torch_counts(name, side, frozen, blur):
    config = ModelConfig(name, freeze=frozen, weights="torchvision")
    with torch.device("meta"):
        network, images = build_model(config, 7, seed=1), torch.empty(2, 3, side, side)
        if blur:
            blur.modify_model(network)
            for module in network.modules():
                if isinstance(module, Blurring):
                    module.blur = lambda x, stride=1: F.max_pool2d(
                        x, 1, stride
                    )  # blurs do not count
        freeze(network, frozen)
    with FlopCounterMode(display=False) as counter:
        network(images).sum().backward()
    methods = Stack({"blurpool": blur} if blur else {})
    found = operations(config, 7, side, methods)
    assert 2 * found.training == counter.get_total_flops()
