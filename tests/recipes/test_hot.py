"""Training steps of Hot against the same steps written in plain torch."""

import copy
import math
from itertools import islice

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor
from torchvision.models import ResNet

from resnet_recipes import data
from resnet_recipes.data.base import normalize
from resnet_recipes.planning.planner import make_plan
from resnet_recipes.recipe.compose import compose
from resnet_recipes.training import loop
from resnet_recipes.training.build import build
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.run import Run
from tests.shared.tiny_networks import build_shallow_resnet18
from tests.training.recording import record

#: Six steps, four per epoch, in micro-batches of 16, with SAM in every third step.
ARGUMENTS = """
data.backend=synthetic data.train_size=32 data.eval_resize=32 data.eval_size=32
model.name=resnet18 bs=32 batch.bn_size=16 max_duration=6ba ssr=1 schedule.warmup=2ba
lr=0.01 methods.stochastic_depth.drop_rate=0.5 methods.sam.interval=3
methods.ema.half_life=3ba methods.ema.update_interval=2ba launch.device=cpu
"""
SEED, CLASSES, PEAK, WARMUP, STEPS = 42, 10, 0.01, 2, 6

#: Pixels that remain of 32 after ColOut.
LEFT = 30

#: Size after progressive resizing in each step: 0.6 of LEFT, then 0.91, in multiples of 4.
SIDES = [16, 16, 16, 16, 28, 28]


@pytest.fixture
def hot_run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of Hot before its first step. The loader is synthetic and runs no RandAugment.

    It uses float64: in float32 rounding flips a ReLU here and there.
    """
    monkeypatch.setattr(torchvision.models, "resnet18", build_shallow_resnet18)
    monkeypatch.setattr(
        loop, "normalize", lambda pixels, *levels: normalize(pixels, *levels).double()
    )
    torch.set_default_dtype(torch.float64)
    recipe = compose("hot", ARGUMENTS.split()).recipe
    hot_run = build(
        make_plan(recipe, data.survey_images(recipe.data), 1), Rank(0, 1, torch.device("cpu"))
    )
    yield hot_run
    hot_run.close()
    torch.set_default_dtype(torch.float32)


def blur_like_composer(x: Tensor, stride: int) -> Tensor:
    """Blur with the kernel of Composer's BlurPool."""
    line = torch.tensor([1.0, 2.0, 1.0]) / 4
    kernel = torch.outer(line, line).expand(x.shape[1], 1, 3, 3)
    return F.conv2d(x, kernel, stride=stride, padding=1, groups=x.shape[1])


def compute_reference_logits(net: ResNet, x: Tensor) -> Tensor:
    """Return the output of a plain ResNet-18 in training with BlurPool and StochasticDepth."""
    x = F.relu(net.bn1(net.conv1(x)))
    x = blur_like_composer(F.max_pool2d(x, 3, 1, 1), 2)
    blocks = [*net.layer1, *net.layer2, *net.layer3, *net.layer4]
    for number, block in enumerate(blocks, start=1):
        before = blur_like_composer(x, 1) if block.stride == 2 else x
        shortcut = x if block.downsample is None else block.downsample(before)
        inside = F.relu(block.bn1(block.conv1(before)))
        inside = block.bn2(block.conv2(inside))
        keep = torch.empty(len(x)).bernoulli_(1 - 0.5 * number / len(blocks))
        x = F.relu(shortcut + inside * keep.view(-1, 1, 1, 1))
    return net.fc(x.mean((2, 3)))


def compute_gradient(net: ResNet, images: Tensor, targets: Tensor) -> float:
    """Compute the gradient of the mean loss of two micro-batches; return the loss."""
    total = 0.0
    for part, part_targets in zip(images.chunk(2), targets.chunk(2), strict=True):
        loss = F.binary_cross_entropy_with_logits(
            compute_reference_logits(net, part), part_targets, reduction="sum"
        )
        (loss / len(images)).backward()
        total += loss.item() / len(images)
    return total


def make_reference_batch(
    pixels: Tensor, labels: Tensor, side: int, rng: np.random.Generator
) -> list[Tensor]:
    """Return normalized images and targets after ColOut, resizing, label smoothing and MixUp."""
    mean, std = (
        torch.tensor(values).view(3, 1, 1)
        for values in ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
    )
    rows, columns = (np.sort(rng.choice(32, LEFT, replace=False)) for _ in "xy")
    nearest = np.arange(side) * LEFT // side
    images = (pixels - mean) / std
    images = images[:, :, rows[nearest]][:, :, :, columns[nearest]]
    share = rng.beta(0.25, 0.25)
    share = min(share, 1 - share)
    order = torch.from_numpy(rng.permutation(len(labels)))
    hard = F.one_hot(labels, CLASSES).double()
    smooth = 0.87 * hard + 0.13 / CLASSES
    return [
        (1 - share) * images + share * images[order],
        (1 - share) * smooth + share * hard[order],
    ]


def list_floats(state: dict[str, Tensor]) -> list[Tensor]:
    return [value for value in state.values() if value.is_floating_point()]


def train_in_loop(
    net: ResNet, raw: list[tuple[Tensor, Tensor]]
) -> tuple[list[float], list[Tensor]]:
    """Train a network; return the losses, and the average of its floating-point state."""
    params = list(net.parameters())
    losses = []
    momentum = [torch.zeros_like(param) for param in params]
    state = list_floats(net.state_dict())
    for step, (pixels, labels) in enumerate(raw):
        rng = np.random.default_rng((SEED, 0, step))
        torch.manual_seed(int(rng.integers(2**63)))
        batch = make_reference_batch(pixels, labels, SIDES[step], rng)
        fall = (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))) / 2
        rate = step / WARMUP if step < WARMUP else fall
        losses.append(compute_gradient(net, *batch))
        if step % 3 == 2:  # SAM
            before_sam = [param.detach().clone() for param in params]
            norm = torch.stack([param.grad.square().sum() for param in params]).sum().sqrt()
            for param in params:
                param.data += 0.5 * param.grad / norm
                param.grad = None
            compute_gradient(net, *batch)
            for param, value in zip(params, before_sam, strict=True):
                param.data.copy_(value)
        for param, moved in zip(params, momentum, strict=True):
            param.data *= 1 - rate * 3.0e-4
            moved.mul_(0.875).add_(param.grad)
            param.data -= PEAK * rate * moved
            param.grad = None
        if step == 0:
            average = [value.clone() for value in state]
        elif step % 2:
            for old, new in zip(average, state, strict=True):
                old += (1 - 2 ** (-2 / 3)) * (new - old)
    return losses, average


def test_hot_six_steps_match_handwritten_loop(hot_run):
    net = build_shallow_resnet18(CLASSES)
    net.load_state_dict(hot_run.model.state_dict())
    assert net.fc.bias.tolist() == pytest.approx([-math.log(CLASSES)] * CLASSES)
    initial = copy.deepcopy(list_floats(net.state_dict()))
    raw = [
        (batch.pixels.clone(), batch.labels.clone())
        for batch in islice(hot_run.train_data.batches(0), STEPS)
    ]
    losses, average = train_in_loop(net, raw)
    recording = record(hot_run)
    assert torch.stack(recording.losses).tolist() == pytest.approx(losses, rel=1e-5)
    with hot_run.methods.eval_weights(hot_run.model):
        actual = copy.deepcopy(list_floats(hot_run.model.state_dict()))
    for before, expected, value in zip(initial, average, actual, strict=True):
        assert (value - expected).norm() < 1e-5 * (expected - before).norm()
