"""Fine-tune a network with different settings, and write the accuracy of each run.

    python benchmarks/finetuning.py select WEIGHTS ANTS_BEES FLOWERS --csv FILE
    python benchmarks/proof/factors.py FILE
    python benchmarks/finetuning.py learning_rates WEIGHTS ANTS_BEES FLOWERS --csv FILE
    python benchmarks/finetuning.py equal_cost WEIGHTS ANTS_BEES FLOWERS --csv FILE
    python benchmarks/finetuning.py test WEIGHTS WASTE IMAGENETTE --csv FILE

WEIGHTS is a file for `timm:tf_efficientnet_lite0`. ANTS_BEES and IMAGENETTE have train/ and val/ by
class, FLOWERS and WASTE have a folder per class. docs/lab/finetuning_choice.md and
docs/lab/finetuning.md describe the runs. An arm is a list of settings. Runs with a row in FILE are
skipped, so a stopped command continues.
"""

import argparse
import hashlib
import itertools
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rows import append_row, is_finished

import resnet_recipes as rr

NETWORK = "timm:tf_efficientnet_lite0"
SIZE = 96  # image size in pixels, in `select` and `learning_rates`
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")

#: The factors of the selection with two levels each, the level before this study first.
FACTORS = {
    "backbone": ("rate", "third"),
    "head": ("rate", "tenfold"),
    "schedule": ("multistep", "cosine"),
    "crops": ("0.08", "0.35"),
    "smoothing": ("0", "0.1"),
    "optimizer": ("sgd", "adamw"),
    "average": ("none", "ema"),
}

VAL_IMAGES = 500  # validation images of all classes together, where this study splits a folder


def main() -> None:
    """Run the requested study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("select", "learning_rates", "equal_cost", "test"))
    parser.add_argument("weights", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/finetuning"))
    arguments = parser.parse_args()
    parts = {
        "select": iterate_selection,
        "learning_rates": iterate_learning_rates,
        "equal_cost": iterate_equal_costs,
        "test": iterate_tests,
    }
    for row, images, *stages in parts[arguments.part](arguments):
        if not is_finished(arguments.csv, row):
            append_row(arguments.csv, row | train(images, stages, arguments))


#: A row, the images, and the settings of one or several successive trainings.
Experiment = tuple[dict[str, str], Path, *tuple[list[str], ...]]


def iterate_selection(arguments: argparse.Namespace) -> Iterator[Experiment]:
    """Yield the experiments of the design, on each dataset in turn."""
    sets = prepare_selection(arguments)
    for levels in make_design():
        choices = {name: FACTORS[name][level] for name, level in zip(FACTORS, levels, strict=True)}
        for name, images in sets.items():
            yield (
                {"set": name, **choices},
                images,
                list_settings(choices, {"sgd": 0.012, "adamw": 0.001}),
            )


def prepare_selection(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return the images of the selection by name."""
    ants, flowers = arguments.folders
    return {
        "ants and bees": ants,
        "flowers": link_split(flowers, arguments.work / "flowers", 40, VAL_IMAGES),
    }


def iterate_learning_rates(arguments: argparse.Namespace) -> Iterator[Experiment]:
    """Yield experiments with the composed recipe at other learning rates."""
    for seed, (name, images) in itertools.product((2, 3), prepare_selection(arguments).items()):
        for arm, settings in ARMS.items():
            row = {"set": name, "seed": str(seed), "arm": arm}
            yield row, images, [*settings, f"seed={seed}"]


def iterate_equal_costs(arguments: argparse.Namespace) -> Iterator[Experiment]:
    """Yield experiments of about equal CPU seconds: larger sizes, and a slower backbone."""
    first = ARMS["0.001, backbone 0.0001, frozen statistics"]
    alone = ARMS["0.01, classifier alone"]
    arms = {
        "0.001, backbone 0.0001": [make_stage(first, 48)],
        "0.001, backbone 0.0001 at 160 px": [make_stage(first, 92, 160)],
        "0.01, backbone 0.0001": [make_stage(compose_settings(0.01, 0.0001, "freeze_bn=true"), 48)],
        "0.01, backbone 0.00003": [
            make_stage(compose_settings(0.01, 0.00003, "freeze_bn=true"), 48)
        ],
        "classifier, then all": [make_stage(alone, 72), make_stage(first, 24)],
        "classifier alone": [make_stage(alone, 144)],
    }
    for (name, images), arm in itertools.product(prepare_selection(arguments).items(), arms):
        yield {"set": name, "seed": "2", "arm": arm}, images, *arms[arm]


def iterate_tests(arguments: argparse.Namespace) -> Iterator[Experiment]:
    """Yield the experiments of the test: 48 steps at 224 px, one seed after the other."""
    waste, imagenette = arguments.folders
    sets = {"waste": link_split(waste, arguments.work / "waste", 0.8, VAL_IMAGES)}
    for count in (10, 50, 300):
        name = f"imagenette {count}"
        sets[name] = link_subset(imagenette, arguments.work / name, count)
    recipes = {
        "before": list_previous_settings(),
        "composed": compose_settings(0.01, 0.00003, "freeze_bn=true"),
        "classifier alone": ARMS["0.01, classifier alone"],
    }
    for seed, (name, images) in itertools.product(range(1, 6), sets.items()):
        for arm, settings in recipes.items():
            row = {"set": name, "seed": str(seed), "arm": arm}
            yield row, images, [*make_stage(settings, 48), f"seed={seed}"]


def make_design() -> list[tuple[int, ...]]:
    """Return a 2^(7-4) design of resolution III and its foldover, together of resolution IV.

    The levels before this study come first. The last four factors are products of the first three.
    """
    rows = []
    for a, b, c in itertools.product((0, 1), repeat=3):
        rows.append((a, b, c, a ^ b ^ c, a ^ b, a ^ c, b ^ c))
    return rows + [tuple(1 - level for level in row) for row in rows]


def list_settings(levels: dict[str, str], lr_by_optimizer: dict[str, float]) -> list[str]:
    """Return the settings of a combination of levels."""
    backbone = lr_by_optimizer[levels["optimizer"]] * (1 if levels["backbone"] == "rate" else 1 / 3)
    head = backbone * (1 if levels["head"] == "rate" else 10)
    arguments = [
        *list_optimizer_settings(levels["optimizer"], head, backbone),
        *SCHEDULES[levels["schedule"]],
    ]
    arguments += [f"data.crop_scale=[{levels['crops']},1.0]", "model.freeze_bn=false"]
    if levels["smoothing"] != "0":
        arguments.append(f"methods.label_smoothing.smoothing={levels['smoothing']}")
    if levels["average"] == "ema":
        arguments += ["methods.ema.half_life=0.1dur", "methods.ema.update_interval=1ba"]
    return arguments


#: Settings of the optimizers and schedules, independent of the recipe.
OPTIMIZERS = {
    "sgd": ["optimizer=sgd", "optimizer.momentum=0.9", "wd=0"],
    "adamw": ["optimizer=adamw"],
}
SCHEDULES = {
    "multistep": ["schedule=step", "schedule.milestones=[0.28dur,0.56dur,0.84dur]"],
    "cosine": ["schedule=cosine", "schedule.warmup=0.1dur"],
}


def list_optimizer_settings(name: str, head: float, backbone: float) -> list[str]:
    """Return the arguments for an optimizer and its learning rates."""
    rates = [f"lr={head:.6g}", f"optimizer.backbone_rate={backbone / head:.6g}"]
    return [*OPTIMIZERS[name], *rates]


def list_previous_settings() -> list[str]:
    """Return the settings of the recipe before this study, for 16 images per step."""
    previous = {name: levels[0] for name, levels in FACTORS.items()}
    return list_settings(previous, {"sgd": 0.004})


def compose_settings(head: float, backbone: float, frozen: str) -> list[str]:
    """Return the settings composed by the selection, with learning rates and frozen layers."""
    rates = list_optimizer_settings("adamw", head, backbone)
    return [*rates, *SCHEDULES["cosine"], "data.crop_scale=[0.35,1.0]", f"model.{frozen}"]


#: Arms: the composed recipe with other learning rates and frozen layers.
ARMS = {
    "0.001": compose_settings(0.001, 0.001, "freeze_bn=false"),
    "0.00033": compose_settings(0.00033, 0.00033, "freeze_bn=false"),
    "0.001, backbone 0.0001": compose_settings(0.001, 0.0001, "freeze_bn=false"),
    "0.001, backbone 0.0001, frozen statistics": compose_settings(0.001, 0.0001, "freeze_bn=true"),
    "0.001, backbone 0.0003, frozen statistics": compose_settings(0.001, 0.0003, "freeze_bn=true"),
    "0.003, backbone 0.0001, frozen statistics": compose_settings(0.003, 0.0001, "freeze_bn=true"),
    "0.01, classifier alone": compose_settings(0.01, 0.01, "freeze=backbone"),
}


def list_common_settings(weights: Path) -> list[str]:
    """Return the settings of all runs."""
    return [
        f"model.name={NETWORK}",
        f"model.weights={weights.absolute()}",
        *list_size_settings(SIZE),
        "data.eval_interpolation=bicubic",
        "model.freeze=none",
        "max_duration=64ba",
        "bs=16",
        "evaluation.interval=1dur",
        "checkpoint.interval=1dur",
        "seed=1",
    ]


def list_size_settings(size: int) -> list[str]:
    """Return the settings for images of a size; the center crop is 7/8 of the resized image."""
    resized = round(size * 8 / 7)
    return [f"data.train_size={size}", f"data.eval_size={size}", f"data.eval_resize={resized}"]


def make_stage(arguments: list[str], steps: int, size: int = 224) -> list[str]:
    """Return the settings for training a number of steps."""
    return [*arguments, *list_size_settings(size), f"max_duration={steps}ba", "seed=2"]


def train(images: Path, stages: list[list[str]], arguments: argparse.Namespace) -> dict[str, str]:
    """Train each stage from the previous weights; return the results of the last stage."""
    # os.times() includes children that have ended
    start = time.monotonic()
    cpu_start = sum(os.times()[:4])
    runs = arguments.work.absolute() / "runs"
    settings = list_common_settings(arguments.weights)
    pflops = 0.0
    for stage in stages:
        paths = [f"data.root={images.absolute()}", f"run.root={runs}"]
        run = rr.train(rr.compose("finetune", *settings, *stage, *paths))
        settings.append(f"model.weights={run.folder}")
        pflops += run.summary["training_pflops"]
    seconds = sum(os.times()[:4]) - cpu_start
    wall = time.monotonic() - start
    summary = run.summary
    shutil.rmtree(runs)
    prefix = "" if "top1_percent" in summary else "raw_"
    return {
        "top1_percent": f"{summary[f'{prefix}top1_percent']:.3f}",
        "pflops": f"{pflops:.6f}",
        "loss": f"{summary[f'{prefix}loss']:.4f}",
        "cpu_seconds": f"{seconds:.0f}",
        "wall_seconds": f"{wall:.0f}",
    }


def link_split(folder: Path, out: Path, train_images: float, val_images: int) -> Path:
    """Link some images of a folder with one folder per class into train/CLASS and val/CLASS.

    `train_images` is a number per class, or a fraction below 1; `val_images` counts all classes.
    """
    shutil.rmtree(out, ignore_errors=True)
    rest = []
    for class_folder in sorted(path for path in folder.iterdir() if path.is_dir()):
        files = sort_by_digest(
            path for path in class_folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES
        )
        count = int(train_images if train_images >= 1 else train_images * len(files))
        link_files(files[:count], out / "train" / class_folder.name)
        rest += files[count:]
    for path in sort_by_digest(rest)[:val_images]:
        link_files([path], out / "val" / path.parent.name)
    return out


def link_subset(folder: Path, out: Path, train_images: int) -> Path:
    """Link some images of a folder with train/ and val/; `train_images` is a number per class."""
    link_split(folder / "train", out, train_images, 0)
    for path in sort_by_digest((folder / "val").glob("*/*"))[:VAL_IMAGES]:
        link_files([path], out / "val" / path.parent.name)
    return out


def sort_by_digest(files: Iterable[Path]) -> list[Path]:
    """Return files in the order of the SHA-256 digests of class and name."""

    def compute_digest(path: Path) -> str:
        return hashlib.sha256(f"{path.parent.name}/{path.name}".encode()).hexdigest()

    return sorted(files, key=compute_digest)


def link_files(files: Iterable[Path], folder: Path) -> None:
    """Link files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        os.symlink(path.absolute(), folder / path.name)


if __name__ == "__main__":
    main()
