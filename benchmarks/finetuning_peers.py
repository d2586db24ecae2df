"""Fine-tune with the settings of other projects, and write the accuracy of each run.

    python benchmarks/finetuning_peers.py WEIGHTS ANTS_BEES --csv FILE [--epochs N ...]

WEIGHTS is a file for the timm network `tf_efficientnet_lite0`, ANTS_BEES has train/ and val/ by
class. All loops start from the same weights, and train on the same number of images of the same
size:

- tutorial: settings of the PyTorch transfer learning tutorial, 4 images per step;
- fastai: `fine_tune` of the fastai learner with its defaults, but 16 images per step;
- timm: its optimizer, scheduler, loss and transform, with nearly the defaults of its train.py;
- ours: `resnet-train finetune`, of the classifier and of all layers;
- linear: a linear classifier on frozen features, for comparison.

Runs with a row in FILE are skipped.
"""

import argparse
import itertools
import os
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import timm
import torch
import torch.nn.functional as F
from rows import append_row, is_finished
from timm.data import create_transform
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode

import resnet_recipes as rr

NETWORK = "tf_efficientnet_lite0"
CROP_PIXELS = 224
RESIZE_PIXELS = 256  # shorter side before a center crop
MEAN_AND_STD = (0.5, 0.5, 0.5)  # mean and standard deviation expected by the network


class FineTuning(NamedTuple):
    """The network, images and duration of a training."""

    weights: Path
    images: Path
    epochs: int  # epochs of the 245 training images
    seed: int
    work: Path


def main() -> None:
    """Run every loop with every seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--epochs", type=int, nargs="+", default=(4,))
    parser.add_argument("--work", type=Path, default=Path("runs/finetuning"))
    arguments = parser.parse_args()
    loops = {
        "linear": fit_linear_classifier,
        "ours, classifier": partial(train_with_resnet_recipes, frozen="backbone"),
        "fastai": train_with_fastai,
        "tutorial": train_like_tutorial,
        "timm": train_with_timm,
        "ours, all layers": partial(train_with_resnet_recipes, frozen="none"),
    }
    runs = itertools.product(arguments.epochs, range(1, 6), loops.items())
    for epochs, seed, (name, loop) in runs:
        row = {"loop": name, "epochs": str(epochs), "seed": str(seed)}
        if not is_finished(arguments.csv, row) and (seed == 1 or loop is not fit_linear_classifier):
            tuning = FineTuning(arguments.weights, arguments.images, epochs, seed, arguments.work)
            append_row(arguments.csv, row | measure(loop, tuning))


def measure(loop: Callable[[FineTuning], float], tuning: FineTuning) -> dict[str, str]:
    """Return the accuracy and seconds of a loop."""
    random.seed(tuning.seed)
    torch.manual_seed(tuning.seed)
    # os.times() includes children that have ended
    start = time.monotonic()
    cpu_start = sum(os.times()[:4])
    top1 = loop(tuning)
    return {
        "top1_percent": f"{top1:.3f}",
        "cpu_seconds": f"{sum(os.times()[:4]) - cpu_start:.0f}",
        "wall_seconds": f"{time.monotonic() - start:.0f}",
    }


def train_with_resnet_recipes(tuning: FineTuning, frozen: str) -> float:
    """Train as `resnet-train finetune model.freeze=...` does."""
    recipe = rr.compose(
        "finetune",
        f"model.name=timm:{NETWORK}",
        f"model.freeze={frozen}",
        f"model.weights={tuning.weights.absolute()}",
        f"data.train_size={CROP_PIXELS}",
        f"data.eval_size={CROP_PIXELS}",
        f"data.eval_resize={RESIZE_PIXELS}",
        "data.eval_interpolation=bicubic",
        f"max_duration={tuning.epochs}ep",
        "evaluation.interval=1dur",
        "checkpoint.interval=1dur",
        f"seed={tuning.seed}",
        f"data.root={tuning.images.absolute()}",
        f"run.root={(tuning.work / 'runs').absolute()}",
    )
    return rr.train(recipe).summary["raw_top1_percent"]


def train_like_tutorial(tuning: FineTuning) -> float:
    """Train like the tutorial, whose learning rate falls after 7, 14 and 21 of 25 epochs."""
    model = build_network(tuning, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(
        optimizer, max(1, round(7 / 25 * tuning.epochs)), 0.1
    )
    crop = [T.RandomResizedCrop(CROP_PIXELS), T.RandomHorizontalFlip(), T.ToTensor()]
    transform = T.Compose([*crop, T.Normalize(MEAN_AND_STD, MEAN_AND_STD)])
    for batches in open_epochs(tuning, 4, transform):
        for images, labels in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
        scheduler.step()
    return measure_accuracy(model, tuning)


def train_with_timm(tuning: FineTuning) -> float:
    """Train with the defaults of train.py, except the batch, the schedule and bilinear crops.

    The warm-up is a fifth of the run, and lr is updated every step.
    """
    model = build_network(tuning, 2)
    optimizer = create_optimizer_v2(
        model, opt="sgd", lr=0.1 * 16 / 256, weight_decay=2e-5, momentum=0.9
    )
    steps = tuning.epochs * (245 // 16)
    scheduler = CosineLRScheduler(
        optimizer, steps, warmup_t=steps // 5, warmup_lr_init=1e-5, t_in_epochs=False
    )
    compute_loss = LabelSmoothingCrossEntropy(0.1)
    transform = create_transform(
        CROP_PIXELS,
        is_training=True,
        hflip=0.5,
        color_jitter=0.4,
        mean=MEAN_AND_STD,
        std=MEAN_AND_STD,
    )
    done = 0
    for batches in open_epochs(tuning, 16, transform):
        for images, labels in batches:
            scheduler.step_update(done)
            optimizer.zero_grad()
            compute_loss(model(images), labels).backward()
            optimizer.step()
            done += 1
    return measure_accuracy(model, tuning)


def train_with_fastai(tuning: FineTuning) -> float:
    """Train with `fine_tune`: one epoch of the head and BatchNorm, then all layers."""
    from fastai.vision import all as fastai

    images = fastai.ImageDataLoaders.from_folder(
        tuning.images,
        train="train",
        valid="val",
        seed=tuning.seed,
        bs=16,
        num_workers=0,
        item_tfms=fastai.Resize(RESIZE_PIXELS),
        batch_tfms=[
            *fastai.aug_transforms(size=CROP_PIXELS),
            fastai.Normalize.from_stats(MEAN_AND_STD, MEAN_AND_STD),
        ],
    )
    learner = fastai.vision_learner(images, NETWORK, normalize=False, pretrained=False)
    body = learner.model[0].model
    body.load_state_dict(build_network(tuning, 2).state_dict(), strict=False)
    with learner.no_bar(), learner.no_logging():
        learner.fine_tune(tuning.epochs - 1)
    logits, labels = learner.get_preds()
    return 100 * (logits.argmax(1) == labels).float().mean().item()


def fit_linear_classifier(tuning: FineTuning) -> float:
    """Fit a linear classifier on the features of all images."""
    model = build_network(tuning, 0).eval()
    (train, labels), (val, truth) = (
        compute_features(model, open_folder(tuning, name, make_val_transform()))
        for name in ("train", "val")
    )
    mean = train.mean(0)
    std = train.std(0) + 1e-6
    train = (train - mean) / std
    val = (val - mean) / std
    head = nn.Linear(train.shape[1], 2)
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=200)

    def compute_loss() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(train), labels) + 1e-2 * head.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(compute_loss)
    return 100 * (head(val).argmax(1) == truth).float().mean().item()


@torch.no_grad()
def compute_features(model: nn.Module, images: datasets.ImageFolder) -> tuple[Tensor, Tensor]:
    """Return the network output for each image, and the labels."""
    outputs_and_labels = [(model(batch), labels) for batch, labels in DataLoader(images, 32)]
    outputs, labels = zip(*outputs_and_labels, strict=True)
    return torch.cat(outputs), torch.cat(labels)


def build_network(tuning: FineTuning, classes: int) -> nn.Module:
    """Return the network with its weights and a new classifier, with the torch initialization."""
    model = timm.create_model(NETWORK, num_classes=classes)
    state = rr.load(tuning.weights, f"model.name=timm:{NETWORK}").model.state_dict()
    backbone = {
        name: tensor for name, tensor in state.items() if not name.startswith("classifier.")
    }
    model.load_state_dict(backbone, strict=False)
    if classes:
        model.classifier.reset_parameters()
    return model.to(memory_format=torch.channels_last)


def measure_accuracy(model: nn.Module, tuning: FineTuning) -> float:
    """Return the top-1 accuracy on the validation images, in percent."""
    logits, labels = compute_features(
        model.eval(), open_folder(tuning, "val", make_val_transform())
    )
    return 100 * (logits.argmax(1) == labels).float().mean().item()


def make_val_transform() -> T.Compose:
    """Return the transform of validation images."""
    resize = T.Resize(RESIZE_PIXELS, InterpolationMode.BICUBIC)
    return T.Compose(
        [resize, T.CenterCrop(CROP_PIXELS), T.ToTensor(), T.Normalize(MEAN_AND_STD, MEAN_AND_STD)]
    )


def open_folder(tuning: FineTuning, name: str, transform: Callable) -> datasets.ImageFolder:
    """Return the images of a split; other files are skipped."""

    def is_image(path: str) -> bool:
        return path.lower().endswith((".jpg", ".jpeg", ".png"))

    return datasets.ImageFolder(tuning.images / name, transform, is_valid_file=is_image)


def open_epochs(tuning: FineTuning, size: int, transform: Callable) -> Iterable[DataLoader]:
    """Return the batches of each epoch."""
    images = open_folder(tuning, "train", transform)
    return [DataLoader(images, size, shuffle=True, drop_last=True) for _ in range(tuning.epochs)]


if __name__ == "__main__":
    main()
