"""Steps, batches, small networks and gradients, for tests of methods and optimizers."""

from collections.abc import Iterator
from copy import deepcopy
from functools import cache

import numpy as np
import torch
from torch import nn
from torchvision.models import ResNet

from resnet_recipes.base.duration import Horizon
from resnet_recipes.methods.base import Batch, Now, encode_one_hot
from tests.shared.tiny_networks import build_narrow_resnet18


def make_now(step: int = 0, total: int = 100, per_epoch: int = 10, seed: int = 0) -> Now:
    """Return the `Now` of a step, with the random generator of that step."""
    return Now(step, Horizon(total, per_epoch), np.random.default_rng((seed, step)))


def make_batch(examples: int = 8, size: int = 32, classes: int = 10) -> Batch:
    """Return a batch of random images in channels_last memory, the same every time."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(examples, 3, size, size, generator=generator).contiguous(
        memory_format=torch.channels_last
    )
    labels = torch.arange(examples) % classes
    return Batch(images, encode_one_hot(labels, classes), labels)


@cache
def _build_network() -> ResNet:
    """Build the network once; copying it takes a quarter of the time."""
    torch.manual_seed(0)
    return build_narrow_resnet18(num_classes=10)


def make_network() -> ResNet:
    """Return a small ResNet, the same every time; seeds torch's generator."""
    model = deepcopy(_build_network())
    torch.manual_seed(0)
    return model


class PolicyNetwork(nn.Module):
    """A network with every kind of parameter that policies distinguish."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.downsample = nn.Sequential(nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8))
        self.fc = nn.Linear(8, 5)


def make_policy_network() -> nn.Module:
    """Return a `PolicyNetwork`, the same every time; seeds torch's generator."""
    torch.manual_seed(0)
    model = PolicyNetwork()
    nn.init.uniform_(model.bn1.weight)
    return model


def make_gradients(
    model: nn.Module, steps: int, scale: float = 1.0
) -> Iterator[list[torch.Tensor]]:
    """Yield random gradients of all parameters for each step, the same in every call."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield [scale * torch.randn(p.shape, generator=generator) for p in model.parameters()]
