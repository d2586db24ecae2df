"""Training steps of peers, on one batch: a bare loop, torchvision's reference, timm, and Composer's, transcribed."""

import copy
from functools import cache

import torch
import torch.nn.functional as F
import torchvision
from session import CLASSES, Memory, Steps, compiled, half
from torch import Tensor, nn

from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.ops.blur import Blurring, by_convolution

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def bare(
    model: nn.Module,
    batch: Memory,
    device: torch.device,
    dtype: torch.dtype,
    is_compiled: bool = False,
) -> Steps:
    """Return a loop as one would write it by hand: autocast, channels_last, fused SGD, nothing that waits."""
    model = model.to(device, memory_format=torch.channels_last).train()
    called = compiled(model, device) if is_compiled else model
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-5, fused=device.type == "cuda"
    )

    def go(steps: int) -> None:
        for _ in range(steps):
            images, labels = normalized(batch), batch.batch.labels
            with torch.autocast(device.type, dtype):
                loss = F.cross_entropy(called(images), labels, label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return go


def torchvision_reference(batch: Memory, device: torch.device, model_name: str) -> Steps:
    """Return the step of torchvision's references/classification: scaled fp16, plain SGD, the loss read every step."""
    model = (
        torchvision.models.get_model(model_name)
        .to(device, memory_format=torch.channels_last)
        .train()
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=2e-5)
    scaler = torch.amp.GradScaler(device.type)

    def go(steps: int) -> None:
        for _ in range(steps):
            images, labels = normalized(batch), batch.batch.labels
            with torch.autocast(device.type, half(device)):
                output = model(images)
                loss = F.cross_entropy(output, labels, label_smoothing=0.1)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            loss.item()
            output.topk(5, 1)[1].eq(labels[:, None]).float().sum().item()

    return go


def timm_loop(
    name: str, batch: Memory, device: torch.device, dtype: torch.dtype, is_compiled: bool = False
) -> Steps:
    """Return a bare loop around one of timm's networks; raises ImportError if timm is not installed."""
    import timm

    return bare(timm.create_model(name, num_classes=CLASSES), batch, device, dtype, is_compiled)


def composer(batch: Memory, device: torch.device, model_name: str) -> Steps:
    """Return the step of Composer 0.7 with Mild's methods, transcribed because its package needs an older torch.

    Blur by depthwise convolutions, fp16 with a scaler, an optimizer that loops over weights, EMA by
    loops every 20 steps, and a loss that is read at every step.
    """
    model = torchvision.models.get_model(model_name)
    BlurPool().modify_model(model)
    for module in model.modules():
        if isinstance(module, Blurring):
            module.blur = lambda x, stride=1: by_convolution(x, stride)
    model = model.to(device, memory_format=torch.channels_last).train()
    average = copy.deepcopy(model)
    scaler, done = torch.amp.GradScaler(device.type), [0]
    optimizer = DecoupledLoop(list(model.parameters()), lr=0.01, momentum=0.875, weight_decay=5e-4)

    def go(steps: int) -> None:
        for _ in range(steps):
            images = normalized(batch)
            targets = F.one_hot(batch.batch.labels, CLASSES) * 0.92 + 0.08 / CLASSES
            with torch.autocast(device.type, half(device)):
                output = model(images)
            loss = F.binary_cross_entropy_with_logits(
                output.float(), targets, reduction="sum"
            ) / len(targets)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            loss.detach().cpu().item()
            done[0] += 1
            if done[0] % 20 == 0:
                _average(average, model)

    return go


class DecoupledLoop(torch.optim.Optimizer):
    """SGD with decoupled weight decay, weight by weight."""

    def __init__(self, params: list[nn.Parameter], **settings: float):
        super().__init__(params, settings)

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        """Update every weight in turn."""
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(1 - group["lr"] / 0.1 * group["weight_decay"])
                if "momentum" not in self.state[p]:
                    self.state[p]["momentum"] = torch.clone(p.grad).detach()
                else:
                    self.state[p]["momentum"].mul_(group["momentum"]).add_(p.grad)
                p.add_(self.state[p]["momentum"], alpha=-group["lr"])


@torch.no_grad()
def _average(average: nn.Module, model: nn.Module) -> None:
    states = average.state_dict(), model.state_dict()
    for name, value in states[0].items():
        value.copy_(value * 0.87 + states[1][name] * 0.13)


def normalized(memory: Memory) -> Tensor:
    """Return the batch as float32 images in channels_last memory."""
    pixels = memory.batch.pixels
    mean, std = (_constant(values, pixels.device) for values in (MEAN, STD))
    return pixels.float().sub_(mean).div_(std)


@cache
def _constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device).view(1, 3, 1, 1)
