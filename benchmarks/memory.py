"""Measure what the launcher's memory settings gain for training steps on a CPU: freed memory is kept, in huge pages.

    python benchmarks/memory.py [--rounds 5] [--json FILE]

Our loop trains ResNet-18 on synthetic images with these settings and without, in turns, each time
in a new process.
"""

import argparse
import json
import os
import subprocess
import sys
from statistics import median

from resnet_recipes.launch.group import MEMORY

#: Image size and batch.
CASES = ((32, 64), (64, 64), (160, 16))

#: Prints the seconds of each step after the first two.
STEP = """
import json, sys, time
from resnet_recipes import data
from resnet_recipes.planning.plan import make_plan
from resnet_recipes.recipe.typed import typed
from resnet_recipes.training.build import build
from resnet_recipes.training.distributed import this_rank
from resnet_recipes.training.loop import train
from resnet_recipes.training.probe import Stopwatch

side, size = map(int, sys.argv[1:])
recipe, problems = typed({
    "name": "memory", "max_duration": "10000ba", "model": {"name": "resnet18"},
    "data": {"backend": "synthetic", "train_size": side}, "batch": {"global_size": size, "bn_size": size},
    "optimizer": {"lr": 0.01}, "schedule": {"warmup": "2ba"}, "launch": {"device": "cpu"}, "methods": {},
})
assert not problems, problems
rank = this_rank("cpu")
stopwatch = Stopwatch(rank.device, 30.0)
train(build(make_plan(recipe, data.measure(recipe.data), 1), rank), stopwatch)
print(json.dumps(stopwatch.laps[2:]))
"""


def seconds(side: int, size: int, environment: dict[str, str]) -> float:
    """Return the median seconds of a step."""
    bare = {name: value for name, value in os.environ.items() if name not in MEMORY}
    done = subprocess.run(
        [sys.executable, "-c", STEP, str(side), str(size)],
        env=bare | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return median(json.loads(done.stdout))


def main() -> None:
    """Measure every case, print a line for each, and write the rows to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rows = []
    for side, size in CASES:
        pairs = [
            (seconds(side, size, MEMORY), seconds(side, size, {})) for _ in range(arguments.rounds)
        ]
        ours, peer = (1 / median(column) for column in zip(*pairs, strict=True))
        ratios = sorted(bare / kept for kept, bare in pairs)
        rows.append(
            {
                "case": f"{side} px, batch {size}",
                "ours": ours,
                "peer": peer,
                "ratio": median(ratios),
                "unit": "steps per second",
            }
        )
        print(
            f"{rows[-1]['case']:<18} {ours:6.2f} {peer:6.2f} steps/s  ratio {median(ratios):.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f})",
            flush=True,
        )
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=2)


if __name__ == "__main__":
    main()
