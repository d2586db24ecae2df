"""Fixtures for the tests of methods.

Steps, batches, a small network, and runs in which float16 overflows.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchvision.models import ResNet

from resnet_recipes.base.duration import Horizon
from resnet_recipes.methods.base import Batch, Now, one_hot
from resnet_recipes.training.loop import train
from resnet_recipes.training.reporter import RunReporter
from resnet_recipes.training.run import Run
from tests.jobs.nursery import narrow_resnet18


@pytest.fixture
def now_at() -> Callable[..., Now]:
    """Return a function that makes the `Now` of a step, with that step's own randomness."""

    def make(step: int = 0, total: int = 100, per_epoch: int = 10, seed: int = 0) -> Now:
        return Now(step, Horizon(total, per_epoch), np.random.default_rng((seed, step)))

    return make


@pytest.fixture
def batch_of() -> Callable[..., Batch]:
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
def resnet() -> ResNet:
    """Return a small ResNet with random weights; to copy them takes a quarter of the time."""
    torch.manual_seed(0)
    return narrow_resnet18(num_classes=10)


@pytest.fixture
def network() -> Callable[[], ResNet]:
    """Return a function that makes the same small ResNet every time."""

    def make() -> ResNet:
        model = deepcopy(resnet())
        torch.manual_seed(0)
        return model

    return make


#: A loss scale at which no float16 gradient of a small run overflows on its own.
SCALE = 1024.0


class After(NamedTuple):
    """The state after a step."""

    done: int
    loss: float
    rate: float
    scale: float  # of the loss, for float16
    model: dict[str, Tensor]  # weights and statistics, without BatchNorm's count of passes
    momenta: list[Tensor]
    methods: dict[str, Tensor]

    @classmethod
    def step(cls, run: Run, done: int, losses: Tensor) -> "After":
        model = {
            name: tensor.clone()
            for name, tensor in run.model.state_dict().items()
            if tensor.is_floating_point()
        }
        momenta = [
            run.optimizer.state[param]["momentum_buffer"].clone()
            for param in run.model.parameters()
        ]
        methods = {name: tensor.clone() for name, tensor in run.methods.state_dict().items()}
        return cls(
            done,
            losses.mean().item(),
            run.optimizer.param_groups[0]["lr"],
            run.precision.scaler.get_scale(),
            model,
            momenta,
            methods,
        )


@pytest.fixture
def train_with_overflow() -> Callable[[Run, int], list[After]]:
    """Return a function that trains a whole run.

    The features of forward pass number `bad` (from 1) are infinite.
    """

    def run_it(run: Run, bad: int) -> list[After]:
        passes, states = [], []

        def spoil(_: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
            passes.append(inputs)
            return output * torch.inf if len(passes) == bad else output

        reporter = Mock(spec=RunReporter)
        reporter.wants_to_stop.return_value = False
        reporter.step.side_effect = lambda done, losses: states.append(
            After.step(run, done, losses)
        )
        run.model.conv1.register_forward_hook(spoil)
        run.precision.load_state_dict(run.precision.state_dict() | {"scale": SCALE})
        train(run, reporter)
        return states

    return run_it
