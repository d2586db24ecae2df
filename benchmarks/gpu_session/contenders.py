"""The contenders: ours, a bare loop, timm's networks, torchvision's reference, Composer's step."""

import copy
from functools import cache

import torch
import torch.nn.functional as F
import torchvision
from bare import MEAN, STD, loop
from session import CLASSES, Memory, Steps, dtype_of, half, ours, recipe_of, without_methods
from torch import Tensor, nn

from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.ops.blur import Blurring


def contender(name: str, side: int, batch: int, device: torch.device, quick: bool) -> Steps:
    """Return the training steps of a contender, named as in `calls`.

    Raises ImportError without timm.
    """
    who, *traits = name.split(", ")
    if who == "ours":
        return _ours(traits, side, batch, device, quick)
    memory, model = Memory(side, batch, device), "resnet18" if quick else "resnet50"
    if who == "torchvision reference":
        return torchvision_reference(memory, device, model)
    if who == "Composer":
        return composer(memory, device, model)
    is_blurred = "blurred" in traits
    network = _timm(model, is_blurred) if who == "timm" else _bare(model, is_blurred)
    mode = "" if traits in ([], ["blurred"]) else traits[-1]
    if not mode:
        keep_filters(network)
    return loop(network, memory, device, dtype_of(device), mode)


def _ours(traits: list[str], side: int, batch: int, device: torch.device, quick: bool) -> Steps:
    """Return our loop for Mild; cuDNN searches for its fastest algorithms, as in the bare loop."""
    precision = {"kernels": "off"} if "kernels off" in traits else {}
    if "compiled" in traits and device.type == "cuda":
        precision["compile"] = True
    recipe = recipe_of("mild", side, batch, quick, precision=precision)
    recipe = without_methods(recipe) if "no methods" in traits else recipe
    return ours(recipe, device, is_searched="heuristics" not in traits)


def _bare(model: str, is_blurred: bool) -> nn.Module:
    """Return torchvision's network, with BlurPool if asked for."""
    network = torchvision.models.get_model(model)
    if is_blurred:
        BlurPool().modify_model(network)
    return network


def _timm(model: str, is_blurred: bool) -> nn.Module:
    import timm

    return timm.create_model("resnetblur50" if is_blurred else model, num_classes=CLASSES)


def torchvision_reference(batch: Memory, device: torch.device, model_name: str) -> Steps:
    """Return the step of torchvision's references/classification.

    Scaled fp16, plain SGD, the loss read every step.
    """
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


def composer(batch: Memory, device: torch.device, model_name: str) -> Steps:
    """Return the step of Composer 0.7 with Mild's methods.

    It is transcribed, because its package needs an older torch.

    Blur by depthwise convolutions, fp16 with a scaler, an optimizer that loops over weights, EMA by
    loops every 20 steps, and a loss that is read at every step.
    """
    model = torchvision.models.get_model(model_name)
    BlurPool().modify_model(model)
    keep_filters(model)
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


def keep_filters(model: nn.Module) -> None:
    """Let BlurPool keep its filter on the device instead of making it each time."""
    for module in model.modules():
        if isinstance(module, Blurring):
            module.blur = blurred


def blurred(x: Tensor, stride: int = 1) -> Tensor:
    """Blur with a depthwise convolution, whose filter is on the device."""
    weights = _filter(x.device).to(x.dtype).expand(x.shape[1], 1, 3, 3)
    return F.conv2d(x, weights, stride=stride, padding=1, groups=x.shape[1])


@cache
def _filter(device: torch.device) -> Tensor:
    line = torch.tensor([1.0, 2.0, 1.0], device=device)
    return line.outer(line) / 16


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
