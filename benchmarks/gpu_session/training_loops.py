"""Training loops by name: ours, a hand-written loop, and the loops of other libraries."""

import copy
from collections.abc import Callable
from functools import cache
from itertools import count

import torch
import torch.nn.functional as F
import torchvision
from handwritten_loop import make_handwritten_loop, make_normalizer
from ratios import MODES
from runs import (
    CLASSES,
    NO_METHODS,
    OneBatchLoader,
    Steps,
    choose_dtype,
    make_recipe,
    make_run,
    make_training_loop,
)
from torch import Tensor, nn

from resnet_recipes.methods.blurpool import BlurPool
from resnet_recipes.ops.blur import Blurring


def make_loop(name: str, size: int, batch: int, device: torch.device, quick: bool) -> Steps:
    """Return a training loop, named as in `calls`.

    Raises ImportError without timm.
    """
    library, *traits = name.split(", ")
    if library == "ours":
        return _make_ours(traits, size, batch, device, quick)
    loader = OneBatchLoader(size, batch, device)
    modes = MODES & set(traits)
    network = _build_network(library, traits, quick).to(device, memory_format=torch.channels_last)
    if not modes:
        keep_blur_filters(network)
    if library == "torchvision reference":
        return make_torchvision_loop(network, loader)
    if library == "Composer":
        return make_composer_loop(network, loader)
    return make_handwritten_loop(network, loader, device, choose_dtype(device), *modes)


def _make_ours(
    traits: list[str], size: int, batch: int, device: torch.device, quick: bool
) -> Steps:
    """Return our loop for Mild with cuDNN benchmark mode, as in the hand-written loop."""
    precision = {"kernels": "off"} if "kernels off" in traits else {}
    if "compiled" in traits and device.type == "cuda":
        precision["compile"] = True
    methods = NO_METHODS if "no methods" in traits else {}
    recipe = make_recipe("mild", size, batch, quick, precision=precision, methods=methods)
    return make_training_loop(make_run(recipe, device, "heuristics" not in traits))


def _build_network(library: str, traits: list[str], quick: bool) -> nn.Module:
    """Return the torchvision network, optionally with BlurPool, or the timm network."""
    name = "resnet18" if quick else "resnet50"
    is_blurred = "blurred" in traits
    if library == "timm":
        import timm

        return timm.create_model("resnetblur50" if is_blurred else name, num_classes=CLASSES)
    network = torchvision.models.get_model(name)
    if is_blurred or library == "Composer":
        BlurPool().modify_model(network)
    return network


def make_torchvision_loop(model: nn.Module, loader: OneBatchLoader) -> Steps:
    """Return the step of torchvision references/classification, with plain SGD.

    It uses cuDNN benchmark mode, and counts correct predictions at every step.
    """
    torch.backends.cudnn.benchmark = True
    labels = loader.batch.labels
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=2e-5)

    def compute_loss(output: Tensor) -> Tensor:
        return F.cross_entropy(output, labels, label_smoothing=0.1)

    def count_right(output: Tensor) -> None:
        output.topk(5, 1)[1].eq(labels[:, None]).float().sum().item()

    return make_fp16_loop(model, loader, optimizer, compute_loss, count_right)


def make_composer_loop(model: nn.Module, loader: OneBatchLoader) -> Steps:
    """Return the step of Composer 0.7 with the methods of Mild.

    It is transcribed, because the package needs an older torch. It blurs with depthwise
    convolutions, the optimizer loops over weights, and EMA loops over weights every 20 steps.
    """
    average_model = copy.deepcopy(model)
    done = count(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.875, foreach=False)

    @torch.no_grad()
    def decay(*_: object) -> None:
        for weight in model.parameters():
            weight.mul_(1 - 5e-5)  # weight decay at a tenth of the peak learning rate

    def compute_loss(output: Tensor) -> Tensor:
        targets = F.one_hot(loader.batch.labels, CLASSES) * 0.92 + 0.08 / CLASSES
        losses = F.binary_cross_entropy_with_logits(output.float(), targets, reduction="sum")
        return losses / len(targets)

    @torch.no_grad()
    def update_average(output: Tensor) -> None:
        if next(done) % 20 == 0:
            state = model.state_dict()
            for name, value in average_model.state_dict().items():
                value.copy_(value * 0.87 + state[name] * 0.13)

    optimizer.register_step_pre_hook(decay)
    return make_fp16_loop(model, loader, optimizer, compute_loss, update_average)


def make_fp16_loop(
    model: nn.Module,
    loader: OneBatchLoader,
    optimizer: torch.optim.Optimizer,
    compute_loss: Callable[[Tensor], Tensor],
    finish: Callable[[Tensor], None],
) -> Steps:
    """Return a loop in scaled fp16 that reads the loss at every step.

    On a CPU it uses bf16, because fp16 is extremely slow there.
    """
    device = loader.batch.labels.device
    dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
    scaler = torch.amp.GradScaler(device.type)
    normalize = make_normalizer(device)
    model.train()

    def take_steps(steps: int) -> None:
        for _ in range(steps):
            images = normalize(loader.batch.pixels)
            with torch.autocast(device.type, dtype):
                output = model(images)
                loss = compute_loss(output)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            loss.item()
            finish(output)

    return take_steps


def keep_blur_filters(model: nn.Module) -> None:
    """Let BlurPool keep its filter on the device instead of creating it each time."""
    for module in model.modules():
        if isinstance(module, Blurring):
            module.blur = blur


def blur(x: Tensor, stride: int = 1) -> Tensor:
    """Blur with a depthwise convolution, whose filter is on the device."""
    weights = _make_filter(x.device).to(x.dtype).expand(x.shape[1], 1, 3, 3)
    return F.conv2d(x, weights, stride=stride, padding=1, groups=x.shape[1])


@cache
def _make_filter(device: torch.device) -> Tensor:
    line = torch.tensor([1.0, 2.0, 1.0], device=device)
    return line.outer(line) / 16
