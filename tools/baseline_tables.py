#!/usr/bin/env python3
"""Write the tables that the baselines are tested against.

Where possible they are computed by the sources' own code. python tools/baseline_tables.py        #
needs torch, torchvision and timm; writes tests/recipes/golden/peers.json

A table has the learning rate of the first and the last step of every epoch, its mean over each
epoch if it changes within epochs, the warm-up, the image size of every epoch, and the names of the
parameters that do not decay. timm's, torch's and torchvision's own classes compute their part;
NVIDIA's, FFCV's, Composer's and MLPerf's formulas are written out here, each in a few lines,
because no package has them.
"""

import json
from collections.abc import Callable
from itertools import groupby
from math import cos, pi
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
import torchvision
from timm.optim._param_groups import param_groups_weight_decay
from timm.scheduler import CosineLRScheduler
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR, StepLR
from torchvision.ops._utils import split_normalization_params

OUT = Path(__file__).parents[1] / "tests/recipes/golden/peers.json"
IMAGES = 1_281_167

#: Changes to NVIDIA's recipe for the reference convergence point that suits one GPU.
ONE_GPU = "bs=1632 lr=7.4 epochs=35 schedule.final=1.3513513513513514e-05"

Rate = Callable[[int], float]  # of a step


def nvidia_hparams() -> dict:
    """Return the table of Composer's CosineAnnealingWithWarmupScheduler, one rate per step."""

    def rate(step: int) -> float:
        return 2.048 * (
            step / 5000 if step < 5000 else (1 + cos(pi * (step - 5000) / (90 * 625 - 5000))) / 2
        )

    return table(rate, 90, 625, 8, [224] * 90, [])


def nvidia_dle() -> dict:
    """Return the table of lr_cosine_policy in image_classification/training.py, by epoch."""

    def rate(step: int) -> float:
        epoch = step // 625
        return 2.048 * (
            (epoch + 1) / 8 if epoch < 8 else (1 + np.cos(np.pi * (epoch - 8) / (90 - 8))) / 2
        )

    return table(rate, 90, 625, 8, [224] * 90, [name for name in parameters() if "bn" in name])


def pytorch_v1() -> dict:
    """Return the table of torch's StepLR, as references/classification/train.py makes it."""
    return table(
        of_torch(0.1, lambda optimizer: StepLR(optimizer, 30, 0.1), 90, 5004),
        90,
        5004,
        0,
        [224] * 90,
        [],
    )


def pytorch_v2() -> dict:
    """Return the table of torch's LinearLR, then CosineAnnealingLR, as in its train.py."""

    def scheduler(optimizer: torch.optim.Optimizer) -> SequentialLR:
        warmup = LinearLR(optimizer, start_factor=0.01, total_iters=5)
        return SequentialLR(
            optimizer, [warmup, CosineAnnealingLR(optimizer, T_max=595)], milestones=[5]
        )

    norms = {id(parameter) for parameter in split_normalization_params(model)[0]}
    spared = [name for name, parameter in parameters().items() if id(parameter) in norms]
    return table(of_torch(0.5, scheduler, 600, 1251), 600, 1251, 5, [176] * 600, spared)


def timm(epochs: int, lr: float, decay: float, size: int) -> dict:
    """Return the table of timm's CosineLRScheduler by its train.py, and of its groups."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
    scheduler = CosineLRScheduler(
        optimizer, t_initial=epochs, lr_min=1e-6, warmup_t=5, warmup_lr_init=1e-4
    )
    rates = [scheduler._get_lr(epoch)[0] for epoch in range(epochs)]
    spared = {id(parameter) for parameter in param_groups_weight_decay(model, decay)[0]["params"]}
    names = [name for name, parameter in parameters().items() if id(parameter) in spared]
    return table(lambda step: rates[step // 625], epochs, 625, 5, [size] * epochs, names)


def ffcv(epochs: int) -> dict:
    """Return the table of get_lr and get_resolution in train_imagenet.py, by rn50_configs."""
    start, end = {
        16: (11, 13),
        24: (17, 20),
        32: (23, 27),
        40: (29, 34),
        56: (41, 48),
        88: (65, 76),
    }[epochs]

    def rate(step: int) -> float:
        epoch, iteration = divmod(step, 312)
        ends = np.interp([epoch, epoch + 1], [0, 2, epochs], [1e-4 * 1.7, 1.7, 0])
        return float(np.interp(iteration, [0, 312], ends))

    def size(epoch: int) -> int:
        if epoch <= start or epoch >= end:
            return 160 if epoch <= start else 192
        return int(np.round(np.interp([epoch], [start, end], [160, 192])[0] / 32)) * 32

    names = [name for name in parameters() if "bn" in name]
    return table(rate, epochs, 312, 2, [size(epoch) for epoch in range(epochs)], names)


def mlperf(batch: int, lr: float, epochs: int) -> dict:
    """Return the table of the polynomial schedule in MLPerf's reference.

    Its warm-up is outside the decay.
    """
    steps = IMAGES // batch
    warmup, total = 2 * steps, epochs * steps

    def rate(step: int) -> float:
        if step < warmup:
            return lr * step / warmup
        return 1e-4 + (lr - 1e-4) * (1 - (step - warmup) / (total - warmup)) ** 2

    names = [name for name, parameter in parameters().items() if parameter.ndim <= 1]
    return table(rate, epochs, steps, 2, [224] * epochs, names)


def of_torch(lr: float, scheduler: Callable, epochs: int, steps: int) -> Rate:
    """Return the rates of one of torch's schedulers, which takes a step once per epoch."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
    made, rates = scheduler(optimizer), []
    for _ in range(epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        made.step()
    return lambda step: rates[step // steps]


def table(
    rate: Rate, epochs: int, steps: int, warmup: int, sizes: list[int], spared: list[str]
) -> dict:
    """Return the table of one recipe."""

    def shown(value: float) -> float:
        return float(f"{value:.10g}")

    ends = [
        [shown(rate(epoch * steps)), shown(rate(epoch * steps + steps - 1))]
        for epoch in range(epochs)
    ]
    by_step = any(first != last for first, last in ends)
    means = [
        shown(fmean(map(rate, range(epoch * steps, epoch * steps + steps))))
        for epoch in range(epochs)
    ]
    return {
        "epochs": epochs,
        "steps_per_epoch": steps,
        "warmup_epochs": warmup,
        "rates": ends,
        "means": means if by_step else [],
        "sizes": [[size, len(list(group))] for size, group in groupby(sizes)],
        "not_decayed": sorted(spared),
    }


def parameters() -> dict[str, torch.nn.Parameter]:
    """Return the parameters of torchvision's ResNet-50."""
    return dict(model.named_parameters())


if __name__ == "__main__":
    model = torchvision.models.resnet50()
    found = {
        "nvidia_hparams": nvidia_hparams(),
        "nvidia_hparams_mlperf": nvidia_hparams(),
        "nvidia_dle": nvidia_dle(),
        "pytorch_v1": pytorch_v1(),
        "pytorch_v2": pytorch_v2(),
        "timm_a1": timm(600, 5e-3, 0.01, 224),
        "timm_a2": timm(300, 5e-3, 0.02, 224),
        "timm_a3": timm(100, 8e-3, 0.02, 160),
        "nvidia_mlperf_pt": mlperf(3264, 10.5, 37),
        f"nvidia_mlperf_pt {ONE_GPU}": mlperf(1632, 7.4, 35),
    } | {f"ffcv_rn50 epochs={epochs}": ffcv(epochs) for epochs in (16, 24, 32, 40, 56, 88)}
    policies = {json.dumps(entry["not_decayed"]): entry["not_decayed"] for entry in found.values()}
    for entry in found.values():  # four lists of names, not sixteen
        entry["not_decayed"] = list(policies).index(json.dumps(entry["not_decayed"]))
    OUT.write_text(
        json.dumps(
            {"not_decayed": list(policies.values()), "recipes": found}, separators=(",", ":")
        )
        + "\n"
    )
