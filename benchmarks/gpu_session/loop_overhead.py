"""Measure the overhead of the training loop: steps per second against a hand-written loop.

    python benchmarks/gpu_session/loop_overhead.py [--quick] [--json FILE]

Data is in memory. Both loops train a ResNet-18 from the same weights with the same loss, optimizer
and normalization, in one process and in turns, so that a noisy machine affects both equally. The
ratio is ours over the hand-written loop: above 1, ours is faster. Both run on the GPU if there is
one. `--quick` only tests the command.
"""

import argparse
import json
from pathlib import Path
from statistics import median

import torch
import torchvision
from handwritten_loop import make_handwritten_loop
from runs import CLASSES, NO_METHODS, Steps, make_recipe, make_run, make_training_loop, time_steps
from torch import nn

from resnet_recipes.training.distributed import read_rank
from resnet_recipes.training.precision import resolve_dtype

#: The settings of the hand-written loop as a recipe.
PEER_SETTINGS = {
    "methods": NO_METHODS | {"label_smoothing": {"smoothing": 0.1}},
    "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "weight_decay": 5e-5},
    "schedule": {"name": "constant", "warmup": "0ba"},
}


def make_loops(size: int, batch: int, device: torch.device) -> dict[str, tuple[nn.Module, Steps]]:
    """Return our loop and the hand-written loop, each with a network; their weights are equal."""
    run = make_run(make_recipe("mild", size, batch, True, **PEER_SETTINGS), device, True)
    model = torchvision.models.resnet18(num_classes=CLASSES)
    model.load_state_dict(run.model.state_dict())
    peer = make_handwritten_loop(model, run.train_data, device, resolve_dtype("auto", device))
    return {"ours": (run.model, make_training_loop(run)), "peer": (model, peer)}


def main() -> None:
    """Measure, show a line, and write it to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny inputs, to test the command")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    size, batch, steps, rounds = (48, 8, 1, 1) if arguments.quick else (64, 32, 10, 9)
    device = read_rank("auto").device
    loops = make_loops(size, batch, device)
    rates: dict[str, list[float]] = {name: [] for name in loops}
    for turn in range(rounds + 1):
        for name in sorted(loops, reverse=turn % 2 == 0):
            _, seconds = time_steps(loops[name][1], steps, device)
            if turn:  # the first turn warms up
                rates[name].append(steps / seconds)
    ratios = [a / b for a, b in zip(rates["ours"], rates["peer"], strict=True)]
    row = {
        "case": f"resnet18 {size} px, batch {batch}, {device.type}",
        **{name: median(values) for name, values in rates.items()},
        "ratio": median(ratios),
        "unit": "steps/s",
    }
    speeds = f"{row['ours']:.3f} steps/s, hand-written loop {row['peer']:.3f}"
    print(f"{row['case']}: {speeds}: {row['ratio']:.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    if arguments.json:
        arguments.json.write_text(json.dumps([row], indent=1) + "\n")


if __name__ == "__main__":
    main()
