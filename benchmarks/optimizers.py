"""Measure a step of every optimizer against plain SGD's: milliseconds at ResNet-50's 25 million parameters.

    python benchmarks/optimizers.py [--device cpu|cuda] [--threads N] [--rounds 9] [--json FILE]

The optimizers take turns on identical models in channels_last memory, with the same gradients. Reported are the fastest
round of each and its ratio to SGD's. On a CPU, memory bandwidth decides, so run nothing else on the machine.
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

from resnet_recipes.optim import OPTIMIZERS


def main() -> None:
    """Measure, print a table, and write it to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = measure(torch.device(options.device), options.rounds)
    table = Table("optimizer", "ms a step", "times SGD's")
    for row in rows:
        table.add_row(row["optimizer"], f"{row['ms']:.1f}", f"{row['ratio']:.2f}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps({"device": options.device, "threads": options.threads, "rows": rows}))


def measure(device: torch.device, rounds: int) -> list[dict[str, object]]:
    """Return a row for each optimizer."""
    steps = {settings.name: step_of(settings, device) for settings in OPTIMIZERS}
    for step in steps.values():
        step()
    laps = [{name: seconds(step, device) for name, step in steps.items()} for _ in range(rounds)]
    best = {name: min(lap[name] for lap in laps) for name in steps}
    return [{"optimizer": name, "ms": 1000 * best[name], "ratio": best[name] / best["sgd"]} for name in steps]


def step_of(settings: type, device: torch.device) -> Callable[[], None]:
    """Return the step function of an optimizer, with its own ResNet-50."""
    torch.manual_seed(0)
    model = torchvision.models.resnet50().to(device, memory_format=torch.channels_last)
    for parameter in model.parameters():
        parameter.grad = 1e-3 * torch.randn_like(parameter)
    return settings().build(model).step


def seconds(step: Callable[[], None], device: torch.device) -> float:
    """Return the seconds of one step, until the device has finished."""
    began = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
