"""Training FLOPs against the torch counter."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from resnet_recipes.base.model_config import ModelConfig
from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network.build import build_model
from resnet_recipes.network.pretrained import freeze
from resnet_recipes.ops.blur import Blurring
from resnet_recipes.planning.layers import count_flops
from tests.shared.tables import parse_values


@pytest.mark.parametrize(
    ("name", "image_size", "frozen", "blur"),
    parse_values(
        """
resnet18 | 64 | none |
resnet50 | 36 | none | {}
resnet18 | 52 | none | {blur_first: false}
resnet18 | 33 | none | {blur_first: false, min_channels: 1}
resnet18 | 40 | none | {blur_first: false, replace_convs: false}
resnet50 | 40 | stem |
resnet18 | 40 | layer2 |
resnet50 | 40 | backbone |
"""
    ),
)
def test_flops_match_torch_flop_counter(name, image_size, frozen, blur):
    config = ModelConfig(name, freeze=frozen, weights="torchvision")
    with torch.device("meta"):
        network = build_model(config, 7, seed=1)
        images = torch.empty(2, 3, image_size, image_size)
        methods = {} if blur is None else {"blurpool": BlurPool(**blur)}
        for blurpool in methods.values():
            blurpool.modify_model(network)
            for module in network.modules():
                if isinstance(module, Blurring):
                    # blurs are not counted
                    module.blur = lambda x, stride=1: F.max_pool2d(x, 1, stride)
        freeze(network, config)
    with FlopCounterMode(display=False) as counter:
        network(images).sum().backward()
    flops = count_flops(config, 7, image_size, Stack(methods))
    assert 2 * flops.training == counter.get_total_flops()
