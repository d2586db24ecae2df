"""Measure the overhead of the training loop.

Its steps per second against a bare PyTorch loop, with data in memory.

    python benchmarks/gpu_session/trainer.py [--model resnet18] [--batch 32] [--pixels 64]
    [--steps 10] [--rounds 9] [--json FILE]

Both run the same model, loss, optimizer, normalisation and learning-rate schedule in one process,
in turns, so that a noisy machine affects both alike. The ratio is ours over bare: above 1, ours is
faster. Both run on the GPU if there is one.
"""

import argparse
import copy
import json
import math
import time
from statistics import median

import torch
import torch.nn.functional as F
from bare import MEAN, STD
from session import CLASSES, Memory, Steps, ours, recipe_of, run_of
from torch import nn

from resnet_recipes.doctor.rates import settle
from resnet_recipes.methods import ORDER
from resnet_recipes.training.distributed import this_rank
from resnet_recipes.training.precision import resolve_dtype

PEAK, LENGTH = 0.1, 10_000  # the learning rate, and the steps in which it falls to 0

METHODS = {cls.name: None for cls in ORDER} | {"bce_loss": {}}


def bare(model: nn.Module, batch: Memory, device: torch.device) -> Steps:
    """Return a handwritten loop that trains a network."""
    weights, done = list(model.train().parameters()), [0]
    optimizer = torch.optim.SGD(weights, lr=PEAK, momentum=0.875, fused=True)
    mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (MEAN, STD))
    dtype = resolve_dtype("auto", device)
    pixels, labels = batch.batch.pixels, batch.batch.labels

    def go(steps: int) -> None:
        for _ in range(steps):
            lr = PEAK * (1 + math.cos(math.pi * done[0] / LENGTH)) / 2
            optimizer.param_groups[0]["lr"] = lr
            images = ((pixels.float() - mean) / std).contiguous(memory_format=torch.channels_last)
            targets = F.one_hot(labels, CLASSES).float()
            with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
                logits = model(images)
            losses = F.binary_cross_entropy_with_logits(logits.float(), targets, reduction="sum")
            (losses / len(targets)).backward()
            with torch.no_grad():
                torch._foreach_mul_(weights, 1 - lr / PEAK * 5e-4)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done[0] += 1

    return go


def main() -> None:
    """Measure, show a line, and write it to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--pixels", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json")
    args = parser.parse_args()
    device = this_rank("auto").device
    changes = {
        "methods": METHODS,
        "model": {"name": args.model},
        "optimizer": {"lr": PEAK, "momentum": 0.875, "weight_decay": 5e-4},
        "schedule": {"warmup": "0ba"},
    }
    recipe = recipe_of("mild", args.pixels, args.batch, False, **changes)
    copied = copy.deepcopy(run_of(recipe, device).model)
    contenders = {
        "ours": ours(recipe, device),
        "peer": bare(copied, Memory(args.pixels, args.batch, device), device),
    }
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(args.rounds + 1):
        for name in sorted(contenders, reverse=turn % 2 == 0):
            began = time.perf_counter()
            contenders[name](args.steps)
            settle(device)
            if turn:  # the first turn warms up
                rates[name].append(args.steps / (time.perf_counter() - began))
    ratios = [a / b for a, b in zip(rates["ours"], rates["peer"], strict=True)]
    row = {
        "case": f"{args.model} {args.pixels} px, batch {args.batch}, {device.type}",
        **{name: median(found) for name, found in rates.items()},
        "ratio": median(ratios),
        "unit": "steps/s",
    }
    speeds = f"{row['ours']:.3f} steps/s, a bare loop {row['peer']:.3f}"
    print(f"{row['case']}: {speeds}: {row['ratio']:.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    if args.json:
        with open(args.json, "w") as file:
            json.dump([row], file, indent=2)


if __name__ == "__main__":
    main()
