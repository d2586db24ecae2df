"""Measure a step of every optimizer, at ResNet-50's 25 million parameters, against torch.optim.SGD's fused step.

    python benchmarks/optimizers.py [--device cpu|cuda] [--threads N] [--rounds 9] [--json FILE]

All take their steps in turns on equal models in channels_last memory, with the same gradients; the
fastest round of each counts. On a CPU memory bandwidth decides: leave the machine alone meanwhile.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torchvision
from rich.console import Console
from rich.table import Table
from torch import nn

from resnet_recipes.optim import OPTIMIZERS


def main() -> None:
    """Measure, print a table, and write it to a file if requested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = measure(torch.device(options.device), options.rounds)
    table = Table("optimizer", "ms a step", "torch's SGD", "ratio", "times our SGD")
    sgd = next(row["ours"] for row in rows if row["case"] == "sgd")
    for row in rows:
        table.add_row(
            row["case"],
            *(f"{row[name]:.1f}" for name in ("ours", "peer")),
            f"{row['ratio']:.2f}",
            f"{row['ours'] / sgd:.2f}",
        )
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def measure(device: torch.device, rounds: int) -> list[dict[str, object]]:
    """Return a row for each optimizer."""
    steps = {
        settings.name: step_of(lambda model, settings=settings: settings().build(model), device)
        for settings in OPTIMIZERS
    }
    peer = step_of(
        lambda model: torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.875, fused=True),
        device,
    )
    everyone = {**steps, "": peer}
    for step in everyone.values():
        step()
    laps = [{name: seconds(step, device) for name, step in everyone.items()} for _ in range(rounds)]
    best = {name: 1000 * min(lap[name] for lap in laps) for name in everyone}
    return [
        {
            "case": name,
            "ours": best[name],
            "peer": best[""],
            "ratio": best[""] / best[name],
            "unit": "ms",
        }
        for name in steps
    ]


def step_of(
    build: Callable[[nn.Module], torch.optim.Optimizer], device: torch.device
) -> Callable[[], None]:
    """Return the step function of an optimizer for a ResNet-50 of its own."""
    torch.manual_seed(0)
    model = torchvision.models.resnet50().to(device, memory_format=torch.channels_last)
    for parameter in model.parameters():
        parameter.grad = 1e-3 * torch.randn_like(parameter)
    return build(model).step


def seconds(step: Callable[[], None], device: torch.device) -> float:
    """Return the seconds of one step, until the device has finished."""
    began = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
