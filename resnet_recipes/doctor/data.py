"""Whether a data folder is what a run needs."""

import contextlib
import os
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.data.beton.file import open_beton
from resnet_recipes.data.cores import cores
from resnet_recipes.data.files.folder import class_names, image_names
from resnet_recipes.data.files.survey import sorting_command
from resnet_recipes.doctor import Finding, Progress, few
from resnet_recipes.doctor.beton import check_betons, verdict
from resnet_recipes.doctor.image import ODDITIES, check_image
from resnet_recipes.errors import NotReadyError

SPLITS = ("train", "val")
IMAGENET = {"train": 1_281_167, "val": 50_000}
_BLOCK = 4096          # files handed to the threads at a time
_SAMPLED = 200         # files decoded for the estimate


class Estimate(NamedTuple):
    """What decoding every image will take, if the disk is as fast as the cores."""

    images: int
    minutes: float
    cores: int


def check_data(root: Path, images: bool = True, progress: Progress = lambda done, total: None) -> list[Finding]:
    """Check a folder with train/ and val/, or with train.beton and val.beton, or one .beton file; with `images`, decode every image."""
    root = Path(root)
    betons = _betons(root)
    found = list(check_betons(betons, images, progress))
    if betons and not any((root / split).is_dir() for split in SPLITS):
        lacking = [split for split in SPLITS if root / f"{split}.beton" not in betons and root not in betons]
        return found + [Finding("fix", f"{root} has no {split}.beton", "resnet-recipes convert SRC DST") for split in lacking]
    missing = [split for split in SPLITS if not (root / split).is_dir()]
    if missing:
        what = f"{root} has no {' and no '.join(f'{split}/' for split in missing)}"
        return [*found, Finding("fix", what, "put the images into train/CLASS/ and val/CLASS/")]
    found += _check_classes(root)
    if images and not any(finding.level == "fix" for finding in found):
        found += _check_images(root, progress)
    return found


def estimate(root: Path) -> Estimate:
    """Decode 200 images of each kind and say what decoding all of them will take; takes a few seconds."""
    root = Path(root)
    files = [path for split in SPLITS if (root / split).is_dir() for path in _files(root / split)]
    images, seconds = len(files), _seconds(check_image, files)
    for path in _betons(root):
        with contextlib.suppress(NotReadyError):        # check_data says what is wrong with the file
            beton = open_beton(path)
            images, seconds = images + len(beton), seconds + _seconds(verdict(beton), range(len(beton)))
    return Estimate(images, seconds / cores() / 60, cores())


def _seconds(check: Callable, items: Sequence) -> float:
    """Return the CPU seconds of checking all items, measured on some of them."""
    sample = random.Random(0).sample(items, min(_SAMPLED, len(items)))
    started = time.process_time()
    for item in sample:
        check(item)
    return len(items) * (time.process_time() - started) / max(1, len(sample))


def _betons(root: Path) -> list[Path]:
    """Return the .beton files that are meant by `root`: itself, or those of a run in it."""
    return [root] if root.suffix == ".beton" else [path for split in SPLITS if (path := root / f"{split}.beton").exists()]


def _check_classes(root: Path) -> Iterator[Finding]:
    """Compare the class folders of both splits, and count what is in them."""
    train, val = (class_names(root / split) for split in SPLITS)
    if train and not val and any((root / "val").iterdir()):
        count = sum(1 for path in (root / "val").iterdir() if path.is_file())
        what = (f"{root}/val has {count:,} files and no class folders (train has {len(train):,} classes), which a list of files and "
                "classes can make, such as Kaggle's")
        yield Finding("fix", what, sorting_command(root))
        return
    for name, classes in (("train", train), ("val", val)):
        if not classes:
            yield Finding("fix", f"{root / name} has no class folders", "put the images into one folder per class")
    for name, extra in (("val", sorted(set(train) - set(val))), ("train", sorted(set(val) - set(train)))):
        if extra and train and val:
            what = f"{root / name} lacks {len(extra)} of the other's classes: every later label would be shifted"
            yield Finding("fix", what, f"make the folders of {root / name} the same as the other's", few(extra))
    for split, classes in (("train", train), ("val", val)):
        counts = {name: sum(1 for _ in image_names(root / split / name)) for name in classes}
        yield from _check_counts(root, split, counts)


def _check_counts(root: Path, split: str, counts: dict[str, int]) -> Iterator[Finding]:
    total = sum(counts.values())
    empty = [name for name, count in counts.items() if not count]
    if empty:
        fix = "add images, or remove the folders in both splits"
        yield Finding("fix", f"{len(empty)} classes of {root / split} have no images", fix, few(empty))
    yield Finding("ok", f"{split}: {total:,} images in {len(counts):,} classes")
    if len(counts) == 1000 and all(re.fullmatch(r"n\d{8}", name) for name in counts) and total != IMAGENET[split]:
        yield Finding("warn", f"{split} looks like ImageNet, which has {IMAGENET[split]:,} images there", "was everything unpacked?")


def _check_images(root: Path, progress: Progress) -> Iterator[Finding]:
    """Decode every image of both splits, and look for the same file in both."""
    odd, digests = defaultdict(list), {split: {} for split in SPLITS}
    files = [(split, path) for split in SPLITS for path in _files(root / split)]
    with ThreadPoolExecutor(cores()) as pool:
        for at in range(0, len(files), _BLOCK):
            block = files[at : at + _BLOCK]
            for (split, path), checked in zip(block, pool.map(check_image, [path for _, path in block]), strict=True):
                digests[split][checked.digest] = path
                for name in checked.oddities:
                    odd[name].append(path)
            progress(at + len(block), len(files))
    for name, paths in odd.items():
        level, meaning, fix = ODDITIES[name]
        yield Finding(level, f"{len(paths):,} images {meaning}", fix, few(paths))
    shared = [digests["val"][digest] for digest in digests["val"].keys() & digests["train"].keys() - {b""}]
    if shared:
        what = f"{len(shared):,} validation images are training images too, byte for byte"
        yield Finding("warn", what, "remove them from train/", few(shared))
    yield Finding("ok", f"all {len(files):,} images were decoded")


def _files(split: Path) -> list[str]:
    return [os.path.join(split, name, file) for name in class_names(split) for file in sorted(image_names(split / name))]
