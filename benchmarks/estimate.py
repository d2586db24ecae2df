"""Measure the error of estimates: estimate runs on this machine, train them, and compare.

    python benchmarks/estimate.py CIFAR10 [--recipes mild,medium] [--sizes 32,48]
    python benchmarks/estimate.py CIFAR10 --budget 2m [--ranks 2]

CIFAR10 has train/ and val/ with a folder of images per class; a subset is used. Runs train
ResNet-18 with all methods of the recipe, including progressive resizing, so the speeds at most
image sizes are interpolated. Earlier measurements are not used. With --budget, a run trains for as
long as its own measurements predict to fit, and its actual time is compared with the budget.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from resnet_recipes.base.duration import parse_budget

SETTINGS = """
model.name=resnet18 bs=64 batch.bn_size=64 lr=0.1 schedule.warmup=0.5ep data.crop_scale=[0.5,1]
methods.ema.half_life=20ba methods.ema.update_interval=4ba workers=1 checkpoint.interval=100ep
"""

TRAIN_IMAGES_PER_CLASS = 150
EPOCHS = "epochs=5"  # duration without --budget


def link_subset(source: Path, root: Path) -> Path:
    """Link the first images of each class: a fifth as many for validation as for training."""
    for split, count in (("train", TRAIN_IMAGES_PER_CLASS), ("val", TRAIN_IMAGES_PER_CLASS // 5)):
        for folder in sorted((source / split).iterdir()):
            (root / split / folder.name).mkdir(parents=True)
            for image in sorted(folder.iterdir())[:count]:
                (root / split / folder.name / image.name).symlink_to(image)
    return root


class Case:
    """A recipe at an image size; all cases share a folder and a cache of measurements."""

    def __init__(self, name: str, size: int, ranks: int, data: Path, folder: Path):
        self.name = f"{name} {size} px, {ranks} rank{'s' * (ranks > 1)}"
        self.folder = folder
        sizes = (f"data.{key}={size}" for key in ("train_size", "eval_resize", "eval_size"))
        rank_settings = ["launch.device=cpu", f"gpus={ranks}"] if ranks > 1 else []
        self.settings = [
            f"recipe={name}",
            f"data={data}",
            *SETTINGS.split(),
            *sizes,
            *rank_settings,
        ]

    def run(self, *arguments: str) -> str:
        """Run `resnet-recipes` in the folder, and return its output."""
        return subprocess.run(
            [sys.executable, "-c", "from resnet_recipes.cli import main; main()", *arguments],
            cwd=self.folder,
            env=os.environ | {"XDG_CACHE_HOME": str(self.folder / "cache")},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    def train(self, duration: str) -> dict[str, Any]:
        """Train a run, and return its summary."""
        name = "".join(letter for letter in f"{self.name}{duration}" if letter.isalnum())
        self.run("train", *self.settings, duration, f"run={name}")
        return json.loads((self.folder / f"runs/{name}/summary.json").read_text())


def measure_error(case: Case) -> dict[str, object]:
    """Estimate a run, train it, and return both times."""
    report = json.loads(case.run("estimate", *case.settings, EPOCHS, "--json"))
    summary = case.train(EPOCHS)
    minutes = report["training_minutes"], *report["bounds_minutes"], report["evaluation_minutes"]
    estimated, low, high, evaluation = (60 * each for each in minutes)
    trained = summary["training_seconds"]
    evaluated = summary["evaluation_seconds"]
    error_percent = 100 * (estimated / trained - 1)
    print(
        f"{case.name:<22} estimated {estimated:6.1f} s ({low:.1f} to {high:.1f}), trained "
        f"{trained:6.1f} s: {error_percent:+.1f}%; evaluation estimated {evaluation:.1f} s, took "
        f"{evaluated:.1f} s",
        flush=True,
    )
    return {
        "case": case.name,
        "estimated": estimated,
        "low": low,
        "high": high,
        "trained": trained,
        "error_percent": error_percent,
        "evaluation_estimated": evaluation,
        "evaluation": evaluated,
    }


def measure_budget(case: Case, budget: str) -> dict[str, object]:
    """Train a run within a budget, and return its row, with the percentage of the budget used."""
    summary = case.train(f"budget={budget}")
    used_percent = 100 * summary["wall_seconds"] / parse_budget(budget, None)
    print(
        f"{case.name:<22} {budget}: {summary['epochs']:5.1f} epochs, {used_percent:5.1f}%",
        flush=True,
    )
    return {
        "case": case.name,
        "budget": budget,
        "epochs": summary["epochs"],
        "used_percent": used_percent,
    }


def main() -> None:
    """Measure every case, and write the rows to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipes", default="mild,medium")
    parser.add_argument("--sizes", default="32,48,64")
    parser.add_argument("--budget", help="instead of epochs: 90s, 2m")
    parser.add_argument("--ranks", type=int, default=1, help="processes on the CPU")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = link_subset(arguments.data.absolute(), Path(folder) / "images")
        for recipe in arguments.recipes.split(","):
            for size in map(int, arguments.sizes.split(",")):
                case = Case(recipe, size, arguments.ranks, data, Path(folder))
                budget = arguments.budget
                rows.append(measure_budget(case, budget) if budget else measure_error(case))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
