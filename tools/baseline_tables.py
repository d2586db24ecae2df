"""Write the tables that the baselines are tested against: tests/recipes/golden/peers.json.

    python tools/baseline_tables.py

A table has the learning rate of the first and the last step of every epoch, its mean over each
epoch if it changes within epochs, the warm-up, the image size of every epoch, and the names of the
parameters that do not decay. The timm and torch schedulers compute their part. The formulas of
NVIDIA, FFCV, Composer and MLPerf are transcribed here, because they are not available in a package.
Requires timm.
"""

import json
from collections.abc import Callable, Iterable
from itertools import groupby
from math import cos, pi
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
import torchvision
from timm.optim import param_groups_weight_decay
from timm.scheduler import CosineLRScheduler
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR, StepLR

TABLES = Path(__file__).parents[1] / "tests/recipes/golden/peers.json"
IMAGENET_IMAGES = 1_281_167

#: Changes to the NVIDIA recipe for the reference convergence point on one GPU.
ONE_GPU = "bs=1632 lr=7.4 epochs=35 schedule.final=1.3513513513513514e-05"

#: Durations of FFCV runs, and the epochs between which images grow.
FFCV = {16: (11, 13), 24: (17, 20), 32: (23, 27), 40: (29, 34), 56: (41, 48), 88: (65, 76)}

MODEL = torchvision.models.resnet50()
NAMES = {id(parameter): name for name, parameter in MODEL.named_parameters()}
NORM_NAMES = [name for name in NAMES.values() if "bn" in name]

LearningRate = Callable[[int], float]  # learning rate as a function of the step


def make_nvidia_hparams() -> dict:
    """Return the table of Composer's CosineAnnealingWithWarmupScheduler, one value per step."""
    return make_table(lambda step: compute_cosine(step, 8 * 625, 90 * 625), 625, 8, [224] * 90)


def make_nvidia_dle() -> dict:
    """Return the table of lr_cosine_policy in image_classification/training.py, by epoch."""

    def compute_lr(step: int) -> float:
        epoch = step // 625
        return compute_cosine(epoch + (epoch < 8), 8, 90)  # no epoch has a learning rate of zero

    return make_table(compute_lr, 625, 8, [224] * 90, NORM_NAMES)


def compute_cosine(done: int, warmup: int, total: int) -> float:
    """Return the NVIDIA learning rate after `done` steps or epochs."""
    factor = (
        done / warmup if done < warmup else 0.5 + cos(pi * (done - warmup) / (total - warmup)) / 2
    )
    return 2.048 * factor


def make_pytorch_v1() -> dict:
    """Return the table of torch StepLR, as in references/classification/train.py."""
    optimizer = make_optimizer(0.1)
    scheduler = StepLR(optimizer, 30, 0.1)
    return make_table(make_lr_by_epoch(optimizer, scheduler.step, 90, 5004), 5004, 0, [224] * 90)


def make_pytorch_v2() -> dict:
    """Return the table of torch LinearLR, then CosineAnnealingLR, as in the same train.py."""
    optimizer = make_optimizer(0.5)
    parts = LinearLR(optimizer, 0.01, total_iters=5), CosineAnnealingLR(optimizer, T_max=595)
    scheduler = SequentialLR(optimizer, [*parts], milestones=[5])
    norms = (module for module in MODEL.modules() if isinstance(module, torch.nn.BatchNorm2d))
    not_decayed = list_names(parameter for norm in norms for parameter in norm.parameters())
    return make_table(
        make_lr_by_epoch(optimizer, scheduler.step, 600, 1251), 1251, 5, [176] * 600, not_decayed
    )


def make_timm(epochs: int, lr: float, decay: float, size: int) -> dict:
    """Return the table of timm CosineLRScheduler as in its train.py, and of its groups."""
    optimizer = make_optimizer(lr)
    numbers = iter(range(1, epochs + 1))
    scheduler = CosineLRScheduler(
        optimizer, t_initial=epochs, lr_min=1e-6, warmup_t=5, warmup_lr_init=1e-4
    )
    lr_by_step = make_lr_by_epoch(optimizer, lambda: scheduler.step(next(numbers)), epochs, 625)
    not_decayed = list_names(param_groups_weight_decay(MODEL, decay)[0]["params"])
    return make_table(lr_by_step, 625, 5, [size] * epochs, not_decayed)


def make_ffcv(epochs: int) -> dict:
    """Return the table of get_lr and get_resolution in train_imagenet.py, with rn50_configs."""
    start, end = FFCV[epochs]

    def compute_lr(step: int) -> float:
        epoch, iteration = divmod(step, 312)
        ends = np.interp([epoch, epoch + 1], [0, 2, epochs], [1e-4 * 1.7, 1.7, 0])
        return float(np.interp(iteration, [0, 312], ends))

    def compute_size(epoch: int) -> int:
        if epoch <= start or epoch >= end:
            return 160 if epoch <= start else 192
        return int(np.round(np.interp([epoch], [start, end], [160, 192])[0] / 32)) * 32

    return make_table(
        compute_lr, 312, 2, [compute_size(epoch) for epoch in range(epochs)], NORM_NAMES
    )


def make_mlperf(batch: int, lr: float, epochs: int) -> dict:
    """Return the table of the polynomial schedule in the MLPerf reference.

    Its warm-up is not part of the decay.
    """
    steps = IMAGENET_IMAGES // batch
    warmup = 2 * steps
    total = epochs * steps

    def compute_lr(step: int) -> float:
        if step < warmup:
            return lr * step / warmup
        return 1e-4 + (lr - 1e-4) * (1 - (step - warmup) / (total - warmup)) ** 2

    not_decayed = list_names(parameter for parameter in MODEL.parameters() if parameter.ndim <= 1)
    return make_table(compute_lr, steps, 2, [224] * epochs, not_decayed)


def make_optimizer(lr: float) -> torch.optim.Optimizer:
    """Return an optimizer for a scheduler."""
    return torch.optim.SGD([torch.zeros(1)], lr=lr)


def make_lr_by_epoch(
    optimizer: torch.optim.Optimizer, advance: Callable[[], None], epochs: int, steps: int
) -> LearningRate:
    """Return the learning rate at each step for a scheduler that advances once per epoch."""
    values = []
    for _ in range(epochs):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        advance()
    return lambda step: values[step // steps]


def list_names(parameters: Iterable[torch.nn.Parameter]) -> list[str]:
    """Return the names of some parameters of ResNet-50."""
    return [NAMES[id(parameter)] for parameter in parameters]


def make_table(
    lr: LearningRate, steps: int, warmup: int, sizes: list[int], not_decayed: Iterable[str] = ()
) -> dict:
    """Return the table of one recipe, with a size for each epoch."""

    def round_for_table(value: float) -> float:
        return float(f"{value:.10g}")

    epochs = [range(first, first + steps) for first in range(0, len(sizes) * steps, steps)]
    ends = [[round_for_table(lr(epoch[0])), round_for_table(lr(epoch[-1]))] for epoch in epochs]
    by_step = any(first != last for first, last in ends)
    return {
        "epochs": len(sizes),
        "steps_per_epoch": steps,
        "warmup_epochs": warmup,
        "rates": ends,
        "means": [round_for_table(fmean(map(lr, epoch))) for epoch in epochs] if by_step else [],
        "sizes": [[size, len(list(group))] for size, group in groupby(sizes)],
        "not_decayed": sorted(not_decayed),
    }


def main() -> None:
    """Write all tables."""
    recipes = {
        "nvidia_hparams": make_nvidia_hparams(),
        "nvidia_hparams_mlperf": make_nvidia_hparams(),
        "nvidia_dle": make_nvidia_dle(),
        "pytorch_v1": make_pytorch_v1(),
        "pytorch_v2": make_pytorch_v2(),
        "timm_a1": make_timm(600, 5e-3, 0.01, 224),
        "timm_a2": make_timm(300, 5e-3, 0.02, 224),
        "timm_a3": make_timm(100, 8e-3, 0.02, 160),
        "nvidia_mlperf_pt": make_mlperf(3264, 10.5, 37),
        f"nvidia_mlperf_pt {ONE_GPU}": make_mlperf(1632, 7.4, 35),
    } | {f"ffcv_rn50 epochs={epochs}": make_ffcv(epochs) for epochs in FFCV}
    name_lists: list[list[str]] = []
    for entry in recipes.values():  # recipes share four lists of names
        if entry["not_decayed"] not in name_lists:
            name_lists.append(entry["not_decayed"])
        entry["not_decayed"] = name_lists.index(entry["not_decayed"])
    tables = {"not_decayed": name_lists, "recipes": recipes}
    TABLES.write_text(json.dumps(tables, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
