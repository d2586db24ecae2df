"""Measure the error of estimates: estimate runs on this machine, train them, and compare.

    python benchmarks/estimate.py CIFAR10 [--recipes mild,medium] [--sizes 32,48,64] [--images 150]

CIFAR10 has train/ and val/ with a folder of images per class; some of them are used. Runs train
ResNet-18 with every method of the recipe, progressive resizing included, so that the speeds of most
image sizes are interpolated. Nothing is taken from earlier measurements.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = [
    "model.name=resnet18",
    "bs=64",
    "batch.bn_size=64",
    "lr=0.1",
    "schedule.warmup=0.5ep",
    "data.crop_scale=[0.5,1]",
    "methods.ema.half_life=20ba",
    "methods.ema.update_interval=4ba",
    "workers=1",
    "checkpoint.interval=100ep",
]


def part(source: Path, images: int, root: Path) -> Path:
    """Make a dataset of the first images of each class.

    All for training, a fifth of them for evaluation.
    """
    for split, count in (("train", images), ("val", images // 5)):
        for folder in sorted((source / split).iterdir()):
            (root / split / folder.name).mkdir(parents=True)
            for image in sorted(folder.iterdir())[:count]:
                (root / split / folder.name / image.name).symlink_to(image)
    return root


def error(recipe: str, size: int, epochs: int, data: Path, folder: Path) -> dict[str, object]:
    """Estimate a run, train it, and return both times."""
    words = [
        f"recipe={recipe}",
        f"data={data}",
        f"epochs={epochs}",
        *WORDS,
        *(f"data.{key}={size}" for key in ("train_size", "eval_resize", "eval_size")),
    ]
    program = "import sys; from resnet_recipes.cli import {}; sys.exit({}())"
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    estimated = subprocess.run(
        [sys.executable, "-c", program.format("main", "main"), "estimate", *words, "--json"],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    subprocess.run(
        [sys.executable, "-c", program.format("train", "train"), *words, f"run={recipe}{size}"],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
    )
    said = json.loads(estimated.stdout)
    done = json.loads((folder / f"runs/{recipe}{size}/summary.json").read_text())
    seconds, low, high = (
        60 * minutes for minutes in (said["training_minutes"], *said["bounds_minutes"])
    )
    return {
        "case": f"{recipe} {size} px",
        "estimated": seconds,
        "low": low,
        "high": high,
        "trained": done["training_seconds"],
        "error_percent": 100 * (seconds / done["training_seconds"] - 1),
        "evaluation_estimated": 60 * said["evaluation_minutes"],
        "evaluation": done["evaluation_seconds"],
    }


def main() -> None:
    """Measure every case, print a line for each, and write the rows to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipes", default="mild,medium")
    parser.add_argument("--sizes", default="32,48,64")
    parser.add_argument("--images", type=int, default=150, help="of each class")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = part(arguments.data.absolute(), arguments.images, Path(folder) / "images")
        for recipe in arguments.recipes.split(","):
            for size in map(int, arguments.sizes.split(",")):
                row = error(recipe, size, arguments.epochs, data, Path(folder))
                rows.append(row)
                print(
                    f"{row['case']:<14} estimated {row['estimated']:6.1f} s ({row['low']:.1f} to "
                    f"{row['high']:.1f}), trained {row['trained']:6.1f} s: "
                    f"{row['error_percent']:+.1f} %; evaluation estimated "
                    f"{row['evaluation_estimated']:.1f} s, took {row['evaluation']:.1f} s",
                    flush=True,
                )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
