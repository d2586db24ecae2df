"""Fixtures for the tests of optimizers: a small model and repeatable gradients."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn


class Small(nn.Module):
    """A network with every kind of parameter that policies distinguish."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.downsample = nn.Sequential(nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8))
        self.fc = nn.Linear(8, 5)


@pytest.fixture
def make_small_model() -> Callable[[], nn.Module]:
    """Return a function that returns equal small models."""

    def make() -> nn.Module:
        torch.manual_seed(0)
        model = Small()
        nn.init.uniform_(model.bn1.weight)
        return model

    return make


@pytest.fixture
def make_gradients() -> Callable[..., Iterator[list[torch.Tensor]]]:
    """Return a function that yields the same random gradients of a model in every call."""

    def draw(model: nn.Module, steps: int, scale: float = 1.0) -> Iterator[list[torch.Tensor]]:
        generator = torch.Generator().manual_seed(1)
        for _ in range(steps):
            yield [scale * torch.randn(p.shape, generator=generator) for p in model.parameters()]

    return draw
