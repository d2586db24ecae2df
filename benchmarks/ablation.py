"""Train small ResNets with each method removed or added; compare accuracy and images per second.

    python benchmarks/ablation.py DATA [--recipe medium] [--only mixup,sam] [--seeds 2] [--epochs 8]
    [--images 100] [--gpu] [--json FILE]

DATA has train/ and val/ by class; the settings suit 32-pixel images such as CIFAR-10's. On a CPU a
cell is a ResNet-18 on `--images` training images of each class, a few minutes each; `--gpu` takes
all images, 30 epochs and three seeds. Every cell is a separate `resnet-train` run; runs that are
finished in `--root` are not repeated.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml
from rich.console import Console
from rich.table import Table

from resnet_recipes.methods import ORDER

TRAIN = (
    sys.executable,
    "-c",
    "import sys; from resnet_recipes.cli import train; sys.exit(train())",
)

SMALL_IMAGES = (
    "model.name=resnet18",
    "data.train_size=32",
    "data.eval_resize=36",
    "data.eval_size=32",
    "data.crop_scale=[0.25,1.0]",
    "schedule.warmup=0.15dur",
    "evaluation.interval=1dur",
    "checkpoint.interval=1dur",
    "scale_schedule_ratio=1",
)


class Cell(NamedTuple):
    """One variant of the recipe."""

    case: str  # "all", "without sam", "with colout"
    changes: tuple[str, ...]  # overrides that make it
    method: str  # the one removed or added, or ""


class Result(NamedTuple):
    """The result of one run of a cell."""

    top1: float  # percent; of the averaged weights where there are any
    images_per_second: float


def main() -> None:
    """Run all cells and seeds, print the table, and write it to a file if requested."""
    options = arguments()
    present = methods_of(options)
    subset = (
        options.data
        if options.gpu
        else few_images(options.data, options.root / f"images-{options.images}", options.images)
    )
    results: dict[Cell, list[Result]] = {}
    for cell in cells(present, options.only):
        results[cell] = [
            run(cell, seed, subset, present, options) for seed in range(1, options.seeds + 1)
        ]
        print(
            f"{cell.case}: {', '.join(f'{result.top1:.2f} %' for result in results[cell])}",
            flush=True,
        )
    rows = table_of(results)
    show(rows, options)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipe", default="medium")
    parser.add_argument(
        "--only",
        type=lambda text: set(text.split(",")),
        default=set(),
        help="methods to remove or add; default: all",
    )
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--images", type=int, default=100, help="of each class, on a CPU")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--root", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.seeds, options.epochs = (
        options.seeds or (3 if options.gpu else 2),
        options.epochs or (30 if options.gpu else 8),
    )
    return options


def methods_of(options: argparse.Namespace) -> set[str]:
    """Return the methods that the recipe has."""
    printed = subprocess.run(
        [*TRAIN, f"recipe={options.recipe}", f"data={options.data}", "--cfg"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(yaml.safe_load(printed.stdout)["methods"])


def cells(present: set[str], only: set[str]) -> Iterator[Cell]:
    """Yield the recipe, then the recipe without each of its methods, then with each compatible method added."""
    yield Cell("all", (), "")
    for method in ORDER:
        if only and method.name not in only:
            continue
        if method.name in present:
            yield Cell(f"without {method.name}", (f"~methods.{method.name}",), method.name)
        elif not method.conflicts & present:
            yield Cell(f"with {method.name}", (f"methods.{method.name}={{}}",), method.name)


def few_images(data: Path, folder: Path, images: int) -> Path:
    """Return a folder with links to the first `images` training images of each class, and as many for evaluation."""
    for split in ("train", "val"):
        for source in sorted(path for path in (data / split).iterdir() if path.is_dir()):
            target = folder / split / source.name
            target.mkdir(parents=True, exist_ok=True)
            for file in sorted(source.iterdir())[:images]:
                if not (target / file.name).exists():
                    (target / file.name).symlink_to(file.resolve())
    return folder


def run(
    cell: Cell, seed: int, data: Path, present: set[str], options: argparse.Namespace
) -> Result:
    """Train one cell with one seed, or read the result of an earlier call."""
    name = f"{options.recipe}-{cell.case.replace(' ', '-')}-{options.epochs}ep-{seed}"
    summary = options.root / name / "summary.json"
    if not summary.exists():
        size, rate = (512, 0.5) if options.gpu else (50, 0.1)
        changes = [
            f"recipe={options.recipe}",
            f"data={data}",
            f"max_duration={options.epochs}ep",
            f"seed={seed}",
            *SMALL_IMAGES,
            f"batch.global_size={size}",
            f"batch.bn_size={size}",
            f"optimizer.lr={rate}",
            *cell.changes,
            f"run.root={options.root}",
            f"run.name={name}",
        ]
        if "ema" in present and cell.method != "ema":  # an average over a twentieth of the run
            changes += ["methods.ema.half_life=0.05dur", "methods.ema.update_interval=0.01dur"]
        done = subprocess.run([*TRAIN, *changes], capture_output=True, text=True)
        if done.returncode:
            said = (done.stdout + done.stderr)[-2000:]
            sys.exit(
                f"{cell.case}, seed {seed}: resnet-train failed with exit code "
                f"{done.returncode}\n{said}"
            )
    found = json.loads(summary.read_text())
    return Result(
        found.get("ema_top1_percent", found.get("raw_top1_percent")), found["images_per_second"]
    )


def table_of(results: dict[Cell, list[Result]]) -> list[dict]:
    """Return one row for each cell: means over seeds and differences from the full recipe."""
    whole = next(iter(results.values()))
    reference, pace = mean(whole).top1, mean(whole).images_per_second
    return [
        {
            "case": cell.case,
            "top1_percent": mean(runs).top1,
            "change": mean(runs).top1 - reference,
            "spread": statistics.stdev(run.top1 for run in runs) if len(runs) > 1 else None,
            "images_per_second": mean(runs).images_per_second,
            "speed": mean(runs).images_per_second / pace,
            "seeds": len(runs),
        }
        for cell, runs in results.items()
    ]


def mean(runs: list[Result]) -> Result:
    """Return the mean over seeds."""
    return Result(*(statistics.fmean(values) for values in zip(*runs, strict=True)))


def show(rows: list[dict], options: argparse.Namespace) -> None:
    """Print the table."""
    title = f"{options.recipe}, {options.epochs} epochs, {options.seeds} seeds"
    table = Table("case", "top-1, %", "+/-", "change, points", "images/s", "speed", title=title)
    for row in rows:
        spread = "" if row["spread"] is None else f"{row['spread']:.2f}"
        table.add_row(
            row["case"],
            f"{row['top1_percent']:.2f}",
            spread,
            f"{row['change']:+.2f}",
            f"{row['images_per_second']:.0f}",
            f"{row['speed']:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
