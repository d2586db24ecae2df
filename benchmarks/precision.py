"""bf16 against fp32 on this machine's CPU: steps per second of the training loop, in turns.

    python benchmarks/precision.py [--steps 6] [--rounds 5] [--json FILE]

Our loop trains ResNet-18 on synthetic images, without methods. The ratio is bf16 over fp32: above
1, bf16 is faster.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from resnet_recipes import data
from resnet_recipes.planning.plan import make_plan
from resnet_recipes.recipe.typed import typed
from resnet_recipes.training.build import build
from resnet_recipes.training.distributed import Rank
from resnet_recipes.training.loop import train
from resnet_recipes.training.run import Run

CASES = ((32, 64), (64, 32), (64, 64))  # pixels, batch


class Turn:
    """A reporter that saves nothing and stops after a number of steps."""

    def __init__(self, steps: int):
        self.left = steps

    def wants_to_stop(self) -> bool:
        self.left -= 1
        return self.left < 0

    def step(self, done: int, loss: Tensor) -> None:
        pass

    log = step

    def evaluate(self, done: int) -> None:
        pass

    save = evaluate


def run_in(dtype: str, pixels: int, batch: int) -> Run:
    """Return a run in this precision."""
    recipe, problems = typed(
        {
            "name": "precision",
            "max_duration": "10000ba",
            "model": {"name": "resnet18"},
            "data": {"backend": "synthetic", "train_size": pixels},
            "batch": {"global_size": batch, "bn_size": batch},
            "optimizer": {"lr": 0.01},
            "schedule": {"warmup": "2ba"},
            "launch": {"device": "cpu"},
            "methods": {},
            "precision": {"dtype": dtype},
        }
    )
    assert not problems, problems
    return build(
        make_plan(recipe, data.measure(recipe.data), 1), Rank(0, 0, 1, torch.device("cpu"))
    )


def rates(pixels: int, batch: int, steps: int, rounds: int) -> dict[str, list[float]]:
    """Return steps per second by precision, one value a round."""
    runs = {dtype: run_in(dtype, pixels, batch) for dtype in ("fp32", "bf16")}
    found: dict[str, list[float]] = {dtype: [] for dtype in runs}
    for turn in range(rounds + 1):
        for dtype in sorted(runs, reverse=turn % 2 == 0):
            began = time.perf_counter()
            done = train(runs[dtype], Turn(steps))
            if turn:  # the first turn warms up
                found[dtype].append(done / (time.perf_counter() - began))
    return found


def main() -> None:
    """Measure every case, print a table, and write the rows to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    table, rows = (
        Table("case", "bf16", "fp32", "ratio", "range", title="training steps per second, CPU"),
        [],
    )
    for pixels, batch in CASES:
        found = rates(pixels, batch, arguments.steps, arguments.rounds)
        ratios = [a / b for a, b in zip(found["bf16"], found["fp32"], strict=True)]
        row = {
            "case": f"resnet18 {pixels} px, batch {batch}",
            "bf16": statistics.median(found["bf16"]),
            "fp32": statistics.median(found["fp32"]),
            "ratio": statistics.median(ratios),
            "unit": "steps/s",
        }
        rows.append(row)
        table.add_row(
            row["case"],
            f"{row['bf16']:.2f}",
            f"{row['fp32']:.2f}",
            f"{row['ratio']:.2f}",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
        )
    Console().print(table)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
