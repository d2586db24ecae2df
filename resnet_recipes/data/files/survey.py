"""Check a folder of images before anything is started."""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from resnet_recipes.data.base import DataConfig, DataFacts
from resnet_recipes.data.files.folder import class_names, image_names
from resnet_recipes.data.files.listing import Listing, Tell
from resnet_recipes.data.root import LAYOUT, SPLITS, misnamed_split, unreadable
from resnet_recipes.errors import NotReadyError, Problem


def survey(config: DataConfig, backend: str, tell: Tell) -> DataFacts:
    """List the images below `config.root`. Raises NotReadyError with everything that is wrong there."""
    root = Path(config.root)
    try:
        return _surveyed(root, backend, tell)
    except OSError as error:                                            # a folder may not be read, or has just vanished
        raise NotReadyError([unreadable(error)]) from None


def sorting_command(root: Path) -> str:
    """Return what to type if val/ has no class folders, with the name of Kaggle's map of files to classes."""
    return f"resnet-recipes doctor data {shlex.quote(str(root))} --fix-val LOC_val_solution.csv"


def _surveyed(root: Path, backend: str, tell: Tell) -> DataFacts:
    _refuse(problem for split in SPLITS for problem in _split_problems(root, split))
    train, val = listings = [Listing.of(root / split, tell) for split in SPLITS]
    others = train.others + val.others
    problems = list(_class_problems(root, train.classes, val.classes))
    for split, listing in zip(SPLITS, listings, strict=True):
        problems += _empty_problems(root / split, listing, others)
    _refuse(problems)
    notes = [f"not read, because of their suffixes: {_kinds(others)}"] if others else []
    notes += [f"{split}: the listing of an earlier start is used, since no folder has changed" for split, listing
              in zip(SPLITS, listings, strict=True) if listing.kept]
    return DataFacts(backend, root, len(train.sizes), len(val.sizes), train.classes, tuple(notes), train.digest,
                     val.digest)


def _refuse(problems: Iterable[Problem]) -> None:
    if found := list(problems):
        raise NotReadyError(found)


def _split_problems(root: Path, split: str) -> Iterator[Problem]:
    """Yield why `split` cannot be read at all."""
    folder = root / split
    if not os.path.isdir(folder):
        if other := misnamed_split(root, split):
            command = f"ln -s {shlex.quote(other)} {shlex.quote(str(folder))}"
            yield Problem("data.root", str(root), f"has no {split}/ folder, but {other}/", command)
        else:
            yield Problem("data.root", str(root), f"has no {split}/ folder", LAYOUT)
    elif not class_names(folder):
        if next(image_names(folder), None) is None:
            yield Problem("data.root", str(folder), "is empty", LAYOUT)
        elif split == "train":
            yield Problem("data.root", str(folder), "holds images without class folders", LAYOUT)
        else:
            rule = "holds images without class folders; a list of files and classes, such as Kaggle's, can sort them"
            yield Problem("data.root", str(folder), rule, sorting_command(root))


def _class_problems(root: Path, classes: Sequence[str], val_classes: Sequence[str]) -> Iterator[Problem]:
    """Yield how the classes of the splits differ: a label is a place in the sorted list, which one more shifts."""
    for here, there, split in ((classes, val_classes, "val"), (val_classes, classes, "train")):
        if missing := sorted(set(here) - set(there)):
            yield Problem("data.root", str(root / split), f"lacks {_some(missing)} of the classes of the other split",
                          "both splits need the same class folders: add these here, or remove them there")
    if len(classes) < 2:
        yield Problem("data.root", str(root / "train"), f"has {len(classes)} class; at least 2 are needed", LAYOUT)
    if odd := [name for name in classes if not name.isprintable()]:
        rule = f"has class names that are not printable UTF-8 text: {_some([ascii(name) for name in odd])}"
        yield Problem("data.root", str(root / "train"), rule, "rename these folders in both splits")


def _empty_problems(folder: Path, listing: Listing, others: Counter) -> Iterator[Problem]:
    if empty := [name for name, count in zip(listing.classes, listing.counts, strict=True) if not count]:
        unread = f"  (not read: {_kinds(others)})" if others else ""
        fix = f"add images, or remove these folders from both splits{unread}"
        yield Problem("data.root", str(folder), f"has no images in {_some(empty)}", fix)


def _kinds(others: Counter) -> str:
    """Return the commonest suffixes of files that are not images by name: '12 .heic, 1 .txt'."""
    hint = "; pip install pillow-heif  makes .heic readable" if ".heic" in others else ""
    return ", ".join(f"{count:,} {kind or 'without a suffix'}" for kind, count in others.most_common(5)) + hint


def _some(names: list[str]) -> str:
    """Return the first few names, and how many there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
