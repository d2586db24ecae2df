"""Check `data.root` itself: whether it can be read, and which folder was probably meant."""

import os
import shlex
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from urllib.parse import urlsplit

from resnet_recipes.base.errors import NotReadyError, Problem
from resnet_recipes.base.paths import is_fetched

LAYOUT = "the layout is ROOT/train/CLASS/image.jpg and ROOT/val/CLASS/image.jpg"
SPLITS = ("train", "val")

#: Names for the splits, including Hugging Face's keywords. The first that exists counts.
SYNONYMS = {
    "train": ("train", "training"),
    "val": ("val", "validation", "valid", "dev", "test", "testing", "eval", "evaluation"),
}

#: Files with the paths and labels of images.
TABLES = (".csv", ".tsv", ".jsonl")

_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".rar", ".7z")
_SEARCHED = 200  # folders searched for splits


def root_problem(given: str) -> Problem | None:
    """Return why `given` cannot be used, with the folder that was probably meant.

    None if it looks right.
    """
    root = Path(given)
    try:
        names = set(os.listdir(root))
    except FileNotFoundError:
        return _missing(root)
    except OSError as error:
        if not os.path.isfile(root):
            return unreadable(error)
        return None if root.suffix.lower() in TABLES else _file_problem(root)
    known = {*chain(*SYNONYMS.values())}
    betons = [split for split in SPLITS if f"{split}.beton" in names]
    others = {Path(name).stem.lower() for name in names if not name.endswith(".beton")}
    is_split = bool(others & known)
    if {"images", "labels"} <= {*_folders(root / "train" if is_split else root)}:
        rule = "has bounding boxes, in labels/, but no class for each image"
        return problem(root, rule, f"for classification, {LAYOUT}")
    if is_split or len(betons) == 2:
        return None
    if betons:
        rule = f"has only {betons[0]}.beton; a run needs train.beton and val.beton"
        return problem(root, rule, "resnet-recipes convert SRC DST")
    if root.name.lower() in known and _has_splits(root.parent):
        rule = "is one split; use the folder containing train/ and val/"
        return problem(root, rule, _typed(root.parent))
    if meant := next(filter(_has_splits, islice(_below(root), _SEARCHED)), None):
        return problem(root, "has no train/ and val/, but a folder in it does", _typed(meant))
    return None


def address_problems(given: str) -> Iterator[Problem]:
    """Yield why images cannot be fetched from an address; its key is relative to `data`."""
    if not is_fetched(given):
        return
    try:
        place = urlsplit(given)
        has_more = place.query or place.fragment or place.username is not None
        _ = place.port  # of me:a/b@host, what is before the slash would be asked
    except ValueError:
        has_more = True
    if has_more or not (place.netloc and given.isprintable()) or " " in given:
        rule = "must be the address of a folder or a table, without password, query or spaces"
        yield Problem("root", given, rule, "data=https://host/folder")
    elif place.path.endswith(_ARCHIVES):
        rule = "is an archive; images are fetched from a folder"
        yield Problem("root", given, rule, "unpack it, and give the folder")


def unreadable(error: OSError) -> Problem:
    """Return the problem for a folder below `data.root` that cannot be listed."""
    folder = Path(error.filename)
    fix = ""
    if isinstance(error, PermissionError):
        fix = f"check its permissions:  ls -ld {shlex.quote(str(folder))}"
    return problem(folder, f"is not a readable directory: {error.strerror}", fix)


def _missing(root: Path) -> Problem:
    """Return the problem for a folder that does not exist, with what exists instead."""
    there = next(parent for parent in root.parents if os.path.isdir(parent))
    wrong, *rest = root.relative_to(there).parts
    names = {name.lower(): name for name in _folders(there)}
    for name in get_close_matches(wrong.lower(), names, n=3, cutoff=0.6):
        if os.path.exists(meant := there.joinpath(names[name], *rest)):
            return problem(root, "does not exist", _typed(meant))
    listed = ", ".join(sorted(names.values())[:8])
    fix = f"{there} has {listed}" if listed else LAYOUT
    if root.match("data/demo"):
        fix = "resnet-train demo   draws its images"
    return problem(root, "does not exist", fix)


def _file_problem(root: Path) -> Problem:
    if root.suffix != ".beton":
        fix = f"unpack an archive;  {LAYOUT};  a table has the columns path and label"
        return problem(root, f"is neither a folder nor a table ({', '.join(TABLES)})", fix)
    fix = "resnet-recipes convert SRC DST  makes both"
    if _has_splits(root.parent):
        fix = _typed(root.parent)
    return problem(root, "is a file; a run reads train.beton and val.beton from one folder", fix)


def _has_splits(folder: Path) -> bool:
    return any(
        all(os.path.exists(folder / f"{split}{suffix}") for split in SPLITS)
        for suffix in ("", ".beton")
    )


def _below(root: Path) -> Iterator[Path]:
    """Yield the folders below `root`, three levels deep, the upper ones first."""
    level = [root]
    for _ in range(3):
        level = [
            folder / name
            for folder in level[:_SEARCHED]
            for name in islice(_folders(folder), _SEARCHED)
        ]
        yield from level


def _folders(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from (
                entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()
            )
    except OSError:
        return


def _typed(folder: Path) -> str:
    return f"data={shlex.quote(str(folder))}"


def problem(root: object, rule: str, fix: str = "") -> Problem:
    """Return the problem with `data.root`, or a part of it."""
    return Problem("data.root", str(root), rule, fix)


def unusable(root: object, rule: str, fix: str = "") -> NotReadyError:
    """Return the error of the images at `data.root`, or of a part of them."""
    return NotReadyError([problem(root, rule, fix)])
