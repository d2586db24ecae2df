"""Fixtures for the tests of methods: steps, batches, a small network."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache

import numpy as np
import pytest
import torch
from torchvision.models import ResNet

from resnet_recipes.base.duration import Horizon
from resnet_recipes.methods.base import Batch, Now, one_hot
from tests.tiny_networks import build_narrow_resnet18


@pytest.fixture
def make_now() -> Callable[..., Now]:
    """Return a function that makes the `Now` of a step, with the random generator of that step."""

    def make(step: int = 0, total: int = 100, per_epoch: int = 10, seed: int = 0) -> Now:
        return Now(step, Horizon(total, per_epoch), np.random.default_rng((seed, step)))

    return make


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    """Return a function that makes a batch of random images in channels_last memory."""

    def make(examples: int = 8, side: int = 32, classes: int = 10) -> Batch:
        generator = torch.Generator().manual_seed(1)
        images = torch.randn(examples, 3, side, side, generator=generator).contiguous(
            memory_format=torch.channels_last
        )
        labels = torch.arange(examples) % classes
        return Batch(images, one_hot(labels, classes), labels)

    return make


@cache
def make_resnet() -> ResNet:
    """Return a small ResNet with random weights; copying it takes a quarter of the time."""
    torch.manual_seed(0)
    return build_narrow_resnet18(num_classes=10)


@pytest.fixture
def make_network() -> Callable[[], ResNet]:
    """Return a function that makes the same small ResNet every time."""

    def make() -> ResNet:
        model = deepcopy(make_resnet())
        torch.manual_seed(0)
        return model

    return make
