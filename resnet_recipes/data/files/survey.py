"""Check a folder of images before anything is started."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from resnet_recipes.data.base import DataConfig, DataFacts
from resnet_recipes.data.files.folder import class_names, image_names
from resnet_recipes.errors import NotReadyError, Problem

_LAYOUT = "the layout is ROOT/train/CLASS/image.jpg and ROOT/val/CLASS/image.jpg"


def survey(config: DataConfig, backend: str) -> DataFacts:
    """Count the images and classes below `config.root`. Raises NotReadyError with everything that is wrong there."""
    root = Path(config.root)
    if not root.is_dir():
        raise NotReadyError([Problem("data.root", config.root, "is no folder that can be read", _LAYOUT)])
    problems = [problem for split in ("train", "val") for problem in _split_problems(root, split)]
    if problems:
        raise NotReadyError(problems)
    classes, val_classes = class_names(root / "train"), class_names(root / "val")
    problems = list(_class_problems(root, classes, val_classes))
    counts = {split: {name: sum(1 for _ in image_names(root / split / name)) for name in names}
              for split, names in (("train", classes), ("val", val_classes))}
    problems += [problem for split, of_class in counts.items() for problem in _empty_problems(root / split, of_class)]
    if problems:
        raise NotReadyError(problems)
    return DataFacts(backend, root, sum(counts["train"].values()), sum(counts["val"].values()), tuple(classes))


def sorting_command(root: Path) -> str:
    """Return what to type where val/ holds images without class folders, with the name of Kaggle's map of files to classes."""
    return f"resnet-recipes doctor data {shlex.quote(str(root))} --fix-val LOC_val_solution.csv"


def _split_problems(root: Path, split: str) -> Iterator[Problem]:
    """Yield why `split` cannot be read at all."""
    folder = root / split
    if not folder.is_dir():
        yield Problem("data.root", str(root), f"has no {split}/ folder", _LAYOUT)
    elif not os.access(folder, os.R_OK | os.X_OK):
        yield Problem("data.root", str(folder), "may not be read by this user")
    elif not class_names(folder):
        if next(image_names(folder), None) is None:
            yield Problem("data.root", str(folder), "is empty", _LAYOUT)
        elif split == "train":
            yield Problem("data.root", str(folder), "holds images without class folders", _LAYOUT)
        else:
            rule = "holds images without class folders, which a list of files and classes can make, such as Kaggle's"
            yield Problem("data.root", str(folder), rule, sorting_command(root))


def _class_problems(root: Path, classes: list[str], val_classes: list[str]) -> Iterator[Problem]:
    """Yield how the classes of the two splits differ: labels are places in the sorted list, so one more would shift the others."""
    for here, there, split in ((classes, val_classes, "val"), (val_classes, classes, "train")):
        if missing := sorted(set(here) - set(there)):
            yield Problem("data.root", str(root / split), f"lacks {_some(missing)} of the classes of the other split")
    if len(classes) < 2:
        yield Problem("data.root", str(root / "train"), f"has {len(classes)} class; at least 2 are needed", _LAYOUT)


def _empty_problems(folder: Path, counts: dict[str, int]) -> Iterator[Problem]:
    if empty := [name for name, count in counts.items() if not count]:
        yield Problem("data.root", str(folder), f"has no images in {_some(empty)}")


def _some(names: list[str]) -> str:
    """Return the first few names, and how many there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
