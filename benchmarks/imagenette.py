"""Train on Imagenette with our recipes and fastai's settings, and write each accuracy.

    python benchmarks/imagenette.py IMAGENETTE --csv FILE [--arms gentle,fastai]
        [--seeds 1,2,3] [--epochs 5] [--depth 18] [--dtype bf16]

IMAGENETTE has train/ and val/ by class. The arms are packaged recipes, and `fastai`: its
library with the settings of its `train_imagenette.py` and the options of its leaderboard. The
network is an XResNet of the same depth. Runs with a row in FILE are skipped.
"""

import argparse
import itertools
import os
import random
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from rows import append_row, is_finished
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import resnet_recipes as rr

SIZE = 128  # pixels, height and width of training and validation images
BATCH = 64  # images per step: the default of train_imagenette.py


class Training(NamedTuple):
    """The images, network and duration of a training."""

    images: Path
    depth: int  # layers of the ResNet
    dtype: str  # dtype of the forward pass: bf16 or fp32
    epochs: int
    seed: int
    work: Path


class TrainingResult(NamedTuple):
    """The result of a training."""

    top1: float  # percent of the validation images
    pflops: float  # compute of forward and backward passes


def main() -> None:
    """Run every arm with every seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--arms", default="gentle,fastai")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--depth", type=int, default=18)
    parser.add_argument("--dtype", default="bf16", choices=("bf16", "fp32"))
    parser.add_argument("--work", type=Path, default=Path("runs/imagenette"))
    arguments = parser.parse_args()
    for seed, arm in itertools.product(arguments.seeds.split(","), arguments.arms.split(",")):
        case = {
            "recipe": arm,
            "depth": str(arguments.depth),
            "epochs": str(arguments.epochs),
            "seed": seed,
            "dtype": arguments.dtype,
        }
        if not is_finished(arguments.csv, case):
            training = Training(
                arguments.images,
                arguments.depth,
                arguments.dtype,
                arguments.epochs,
                int(seed),
                arguments.work,
            )
            append_row(arguments.csv, case | measure(arm, training))


def measure(arm: str, training: Training) -> dict[str, str]:
    """Return the accuracy and cost of an arm."""
    # os.times() includes children that have ended
    start = time.monotonic()
    cpu_start = sum(os.times()[:4])
    result = (
        train_with_fastai(training) if arm == "fastai" else train_with_resnet_recipes(arm, training)
    )
    return {
        "top1_percent": f"{result.top1:.3f}",
        "pflops": f"{result.pflops:.6g}",
        "cpu_minutes": f"{(sum(os.times()[:4]) - cpu_start) / 60:.1f}",
        "wall_minutes": f"{(time.monotonic() - start) / 60:.1f}",
    }


def train_with_resnet_recipes(arm: str, training: Training) -> TrainingResult:
    """Train a packaged recipe."""
    paths = (f"data.root={training.images.absolute()}", f"run.root={training.work.absolute()}")
    summary = rr.train(rr.compose(arm, *list_changes(arm, training), *paths)).summary
    top1 = summary.get("ema_top1_percent", summary["raw_top1_percent"])
    return TrainingResult(top1, summary["training_pflops"])


def list_changes(arm: str, training: Training) -> list[str]:
    """Return the changes to a packaged recipe: 128 px, and durations that suit a short run.

    Methods, strengths and crops stay. The lr is scaled linearly with the batch.
    """
    original = rr.compose(arm)
    resized = round(original.data.eval_resize * SIZE / original.data.eval_size)
    changes = [
        f"model.name=resnet{training.depth}",
        f"data.train_size={SIZE}",
        f"data.eval_size={SIZE}",
        f"data.eval_resize={resized}",
        f"batch.global_size={BATCH}",
        f"batch.bn_size={BATCH}",
        f"optimizer.lr={original.optimizer.lr * BATCH / original.batch.global_size}",
        "schedule.warmup=0.2dur",
    ]
    if original.methods.ema:
        changes += ["methods.ema.half_life=0.05dur", "methods.ema.update_interval=0.01dur"]
    return [
        *changes,
        f"epochs={training.epochs}",
        f"seed={training.seed}",
        f"precision.dtype={training.dtype}",
        "evaluation.interval=1dur",
        "checkpoint.interval=1dur",
    ]


def train_with_fastai(training: Training) -> TrainingResult:
    """Train with fastai's Imagenette settings, as its leaderboard does at 5 and 20 epochs."""
    from fastai.vision import all as library
    from fastai.vision.models import xresnet

    class Bf16(library.Callback):
        """Compute in bf16; fastai's own `to_bf16` needs CUDA."""

        def before_batch(self) -> None:
            self.learn.xb = tuple(pixels.as_subclass(Tensor) for pixels in self.xb)
            self.autocast = torch.autocast("cpu", torch.bfloat16)
            self.autocast.__enter__()

        def after_pred(self) -> None:
            self.autocast.__exit__(None, None, None)
            self.learn.pred = self.pred.float()

    class NoEvaluation(library.Callback):
        """Skip the evaluations between epochs, as in our runs; they change nothing."""

        def before_validate(self) -> None:
            raise library.CancelValidException

    build = partial(
        getattr(xresnet, f"xresnet{training.depth}"), n_out=10, sa=True, pool=library.MaxPool
    )
    flops = count_flops(build(act_cls=nn.Mish))
    random.seed(training.seed)
    library.set_seed(training.seed)
    images = library.DataBlock(
        blocks=(library.ImageBlock, library.CategoryBlock),
        get_items=library.get_image_files,
        get_y=library.parent_label,
        splitter=library.GrandparentSplitter(valid_name="val"),
        item_tfms=[library.RandomResizedCrop(SIZE, min_scale=0.35), library.FlipItem(0.5)],
        batch_tfms=[library.Normalize.from_stats(*library.imagenet_stats, cuda=False)],
    ).dataloaders(training.images, bs=BATCH, num_workers=0, device="cpu")
    learner = library.Learner(
        images,
        build(act_cls=Mish),
        library.LabelSmoothingCrossEntropy(),
        partial(library.ranger, mom=0.95, sqr_mom=0.99, eps=1e-6),
        cbs=Bf16() if training.dtype == "bf16" else None,
        metrics=library.accuracy,
    )
    with learner.no_bar(), learner.no_logging():
        learner.fit_flat_cos(training.epochs, 8e-3, wd=1e-2, cbs=NoEvaluation())
        top1 = 100 * learner.validate()[1]
    steps = training.epochs * len(images.train)
    return TrainingResult(top1, steps * BATCH * flops / 1e15)


def count_flops(model: nn.Module) -> float:
    """Return the FLOPs of a forward and backward pass of one image."""
    images = torch.randn(2, 3, SIZE, SIZE)
    with FlopCounterMode(display=False) as counter:
        model(images).sum().backward()
    return counter.get_total_flops() / 2


class Mish(nn.Module):
    """torch's Mish in one fused kernel with one exponential, which is 2.5 times as fast in bf16."""

    def forward(self, pixels: Tensor) -> Tensor:
        return compute_mish(pixels)


@torch.compile
def compute_mish(pixels: Tensor) -> Tensor:
    """Return x * tanh(softplus(x)), whose tanh is n / (n + 2) with n = e^x * (e^x + 2)."""
    power = torch.exp(pixels.clamp(max=20.0))
    numerator = power * (power + 2)
    return pixels * numerator / (numerator + 2)


if __name__ == "__main__":
    main()
