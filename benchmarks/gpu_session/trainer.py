"""Measure the overhead of the training loop.

Its steps per second against a bare PyTorch loop, with data in memory.

    python benchmarks/gpu_session/trainer.py [--model resnet18] [--batch 32] [--pixels 64]
    [--steps 10] [--rounds 9] [--json FILE]

Both train the same model with the same loss, optimizer and normalisation in one process, in turns,
so that a noisy machine affects both alike. The ratio is ours over bare: above 1, ours is faster.
Both run on the GPU if there is one.
"""

import argparse
import json
from statistics import median

import torchvision
from bare import loop
from session import CLASSES, NONE, Memory, recipe_of, run_of, timed, training

from resnet_recipes.training.distributed import this_rank
from resnet_recipes.training.precision import resolve_dtype

#: What the bare loop does, as a recipe.
ALIKE = {
    "methods": NONE | {"label_smoothing": {"smoothing": 0.1}},
    "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "weight_decay": 5e-5},
    "schedule": {"name": "constant", "warmup": "0ba"},
}


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
    device, size = this_rank("auto").device, (args.pixels, args.batch)
    recipe = recipe_of("mild", *size, False, model={"name": args.model}, **ALIKE)
    model = torchvision.models.get_model(args.model, num_classes=CLASSES)
    contenders = {
        "ours": training(run_of(recipe, device, True)),
        "peer": loop(model, Memory(*size, device), device, resolve_dtype("auto", device)),
    }
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(args.rounds + 1):
        for name in sorted(contenders, reverse=turn % 2 == 0):
            _, seconds = timed(contenders[name], args.steps, device)
            if turn:  # the first turn warms up
                rates[name].append(args.steps / seconds)
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
