"""Measure the overhead of the training loop.

Its steps per second against a bare PyTorch loop, with data in memory.

    python benchmarks/trainer.py [--model resnet18] [--batch 32] [--pixels 64] [--steps 10]
    [--rounds 9] [--json FILE]

Both run the same model, loss, optimizer, normalisation and learning-rate schedule in one process,
in turns, so that a noisy machine affects both alike. The ratio is ours over bare: above 1, ours is
faster. Both run on the GPU if there is one.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from resnet_recipes.data.base import DataFacts, RawBatch
from resnet_recipes.methods.stack import Stack
from resnet_recipes.network.build import build_model, build_network
from resnet_recipes.ops import Operations
from resnet_recipes.planning.plan import make_plan
from resnet_recipes.recipe.typed import typed
from resnet_recipes.training.clock import Clock
from resnet_recipes.training.distributed import Rank, this_rank
from resnet_recipes.training.exchange import Exchange
from resnet_recipes.training.loop import train
from resnet_recipes.training.precision import Precision, resolve_dtype
from resnet_recipes.training.run import Run
from resnet_recipes.training.tuning import Tuning

CLASSES = 1000
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


class Memory:
    """A loader that has one batch, on the device."""

    def __init__(self, batch: RawBatch):
        self.batch = batch

    def batches(self, *_: object) -> Iterator[RawBatch]:
        while True:
            yield self.batch

    def close(self) -> None:
        pass


class Silence:
    """A reporter that saves nothing, and reads the loss when ours would: once, at the end."""

    def __init__(self) -> None:
        self.loss = 0.0

    def wants_to_stop(self) -> bool:
        return False

    def step(self, done: int, losses: Tensor) -> None:
        self.last = losses.mean()

    def log(self, done: int, stream: object) -> None:
        self.loss = float(self.last)

    def evaluate(self, done: int) -> None:
        pass

    save = evaluate


def in_memory(args: argparse.Namespace, batch: RawBatch, rank: Rank, compress: bool = False) -> Run:
    """Return one of our runs on one batch; it exchanges gradients if there is a process group."""
    recipe, problems = typed(
        {
            "name": "bench",
            "max_duration": f"{args.steps}ba",
            "model": {"name": args.model},
            "data": {"backend": "synthetic", "train_size": args.pixels},
            "batch": {"global_size": args.batch},
            "optimizer": {"lr": 0.1},
            "schedule": {"warmup": "2ba"},
            "log": {"interval": f"{args.steps}ba"},
            "evaluation": {"interval": "1dur"},
            "methods": {"bce_loss": {}},
        }
    )
    assert not problems, problems
    facts = DataFacts(
        "synthetic", "memory", args.batch * args.steps, args.batch, tuple(map(str, range(CLASSES)))
    )
    plan, methods, device = make_plan(recipe, facts, 1), Stack.of(recipe.methods), rank.device
    model = build_network(recipe, methods, CLASSES, device)
    return Run(
        plan=plan,
        rank=rank,
        model=model,
        exchange=Exchange(model, compress),
        optimizer=recipe.optimizer.build(model),
        methods=methods,
        operations=Operations(),
        precision=Precision(device, resolve_dtype("auto", device), model),
        clock=Clock(device),
        tuning=Tuning(),
        train_data=Memory(batch),
        eval_data=None,
    )


def ours(args: argparse.Namespace, batch: RawBatch, device: torch.device) -> Callable[[int], float]:
    """Return a function that trains for a number of steps with the package's loop."""
    run = in_memory(args, batch, this_rank("auto"))

    def go(steps: int) -> float:
        reporter = Silence()
        train(run, reporter)
        return reporter.loss

    return go


def bare(args: argparse.Namespace, batch: RawBatch, device: torch.device) -> Callable[[int], float]:
    """Return a function that trains for a number of steps with a handwritten loop."""
    ours_config = typed({"name": "bench", "model": {"name": args.model}})[0]
    model = build_model(ours_config.model, CLASSES, 0)
    torch.nn.init.constant_(model.fc.bias, -math.log(CLASSES))
    model = model.to(device, memory_format=torch.channels_last).train()
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.875, fused=True)
    mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (MEAN, STD))
    dtype = resolve_dtype("auto", device)

    def go(steps: int) -> float:
        for step in range(steps):
            lr = 0.1 * (
                step / 2 if step < 2 else (1 + math.cos(math.pi * (step - 2) / (steps - 2))) / 2
            )
            optimizer.param_groups[0]["lr"] = lr
            images = ((batch.pixels.float() - mean) / std).contiguous(
                memory_format=torch.channels_last
            )
            targets = F.one_hot(batch.labels, CLASSES).float()
            with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
                logits = model(images)
            loss = F.binary_cross_entropy_with_logits(
                logits.float(), targets, reduction="sum"
            ) / len(targets)
            loss.backward()
            with torch.no_grad():
                torch._foreach_mul_(weights, 1 - lr / 0.1 * 5e-4)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    return go


def main() -> None:
    """Measure, print a table, and write the rows to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--pixels", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json")
    args = parser.parse_args()
    device = this_rank("auto").device
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(
        0, 256, (args.batch, args.pixels, args.pixels, 3), dtype=torch.uint8, generator=generator
    ).permute(0, 3, 1, 2)
    batch = RawBatch(
        pixels.to(device), torch.randint(0, CLASSES, (args.batch,), generator=generator).to(device)
    )
    contenders = {"ours": ours(args, batch, device), "bare": bare(args, batch, device)}
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(args.rounds + 1):
        for name in sorted(contenders, reverse=turn % 2 == 0):
            began = time.perf_counter()
            contenders[name](args.steps)
            if turn:  # the first turn warms up
                rates[name].append(args.steps / (time.perf_counter() - began))
    ratios = [a / b for a, b in zip(rates["ours"], rates["bare"], strict=True)]
    row = {
        "case": f"{args.model} {args.pixels} px, batch {args.batch}, {device.type}",
        "ours": statistics.median(rates["ours"]),
        "peer": statistics.median(rates["bare"]),
        "ratio": statistics.median(ratios),
        "unit": "steps/s",
    }
    table = Table(
        "case",
        "ours",
        "bare loop",
        "ratio",
        "range",
        title="training loop against a bare PyTorch loop, steps per second",
    )
    table.add_row(
        row["case"],
        f"{row['ours']:.3f}",
        f"{row['peer']:.3f}",
        f"{row['ratio']:.3f}",
        f"{min(ratios):.3f} to {max(ratios):.3f}",
    )
    Console().print(table)
    if args.json:
        with open(args.json, "w") as file:
            json.dump([row], file, indent=2)


if __name__ == "__main__":
    main()
