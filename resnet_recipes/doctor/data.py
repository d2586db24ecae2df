"""Whether a data folder is what a run needs."""

import os
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.data.beton.file import open_beton
from resnet_recipes.data.beton.order import stored_by_class
from resnet_recipes.data.files.folder import class_names, image_names
from resnet_recipes.data.files.survey import sorting_command
from resnet_recipes.doctor import Finding, few
from resnet_recipes.doctor.image import ODDITIES, check_image
from resnet_recipes.errors import NotReadyError

SPLITS = ("train", "val")
IMAGENET = {"train": 1_281_167, "val": 50_000}
_BLOCK = 4096          # files handed to the threads at a time
_SAMPLED = 200         # files decoded for the estimate

#: (done, total) -> None.
Progress = Callable[[int, int], None]


class Estimate(NamedTuple):
    """What decoding every image will take."""

    images: int
    minutes: float
    cores: int


def check_data(root: Path, images: bool = True, progress: Progress = lambda done, total: None) -> list[Finding]:
    """Check a folder with train/ and val/, or with train.beton and val.beton, or one .beton file; with `images`, decode every image."""
    root = Path(root)
    betons = [root] if root.suffix == ".beton" else [root / f"{split}.beton" for split in SPLITS if (root / f"{split}.beton").exists()]
    found = [finding for beton in betons for finding in _check_beton(beton, images, progress)]
    if betons and not any((root / split).is_dir() for split in SPLITS):
        return found
    missing = [split for split in SPLITS if not (root / split).is_dir()]
    if missing:
        what = f"{root} has no {' and no '.join(f'{split}/' for split in missing)}"
        return [*found, Finding("fix", what, "put the images into train/CLASS/ and val/CLASS/")]
    found += _check_classes(root)
    if images and not any(finding.level == "fix" for finding in found):
        found += _check_images(root, progress)
    return found


def estimate(root: Path) -> Estimate:
    """Decode 200 images and say what decoding all of them will take; takes a second or two."""
    files = [path for split in SPLITS if (Path(root) / split).is_dir() for path in _files(Path(root) / split)]
    sample = random.Random(0).sample(files, min(_SAMPLED, len(files)))
    started = time.process_time()
    for path in sample:
        check_image(path)
    cores = len(os.sched_getaffinity(0))
    return Estimate(len(files), len(files) * (time.process_time() - started) / max(1, len(sample)) / cores / 60, cores)


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
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
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


def _check_beton(path: Path, images: bool, progress: Progress) -> Iterator[Finding]:
    """Check the description of a .beton file and, with `images`, the content of every sample."""
    again = "resnet-recipes convert SRC DST"
    try:
        beton = open_beton(path)
    except NotReadyError as error:
        yield from (Finding("fix", f"{problem.key} {problem.rule}", problem.fix) for problem in error.problems)
        return
    yield Finding("ok", f"{path.name}: {len(beton):,} images in {len(beton.classes):,} classes, {beton.content.size / 1e9:.1f} GB")
    if beton.sidecar is None:
        yield Finding("warn", f"{path.name} has no note with checksums beside it: damage inside images may go unseen", again)
    if stored_by_class(beton):
        what = f"{path.name} is stored class by class: data.order=quasi_random cannot be used"
        yield Finding("warn", what, f"{again} shuffles by default")
    if images:
        damaged = []
        for index in range(len(beton)):
            if complaint := beton.complaint(index):
                damaged.append(f"sample {index}: {complaint}")
            if index % _BLOCK == _BLOCK - 1 or index == len(beton) - 1:
                progress(index + 1, len(beton))
        if damaged:
            yield Finding("fix", f"{len(damaged):,} samples of {path.name} are damaged", again, few(damaged))


def _files(split: Path) -> list[str]:
    return [os.path.join(split, name, file) for name in class_names(split) for file in sorted(image_names(split / name))]
