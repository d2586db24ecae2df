"""The layout of a dataset: the location of the images of each split, and the source of labels."""

import hashlib
import os
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from resnet_recipes.base.errors import Hint
from resnet_recipes.base.text import Say, do_nothing
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.files import table
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.root import (
    SYNONYMS,
    TABLES,
    find_split_families,
    find_split_folders,
    list_classes,
    make_error,
)


class Part(NamedTuple):
    """The images of a split: a folder of class folders, or rows of a table."""

    name: str  # name in the folder or table
    path: Path
    is_only_split: bool = True  # False: the table has several splits

    @property
    def is_table(self) -> bool:
        """Whether the labels come from a table."""
        return self.path.suffix.lower() in TABLES and self.path.is_file()

    def listing(self, config: DataConfig, on_progress: Say = do_nothing) -> Listing:
        """List the images.

        Raises NotReadyError if the table is not valid, and OSError if a folder cannot be read.
        """
        if self.is_table:
            rows = table.read_rows(self.path, self.name.lower() if self.is_only_split else "")
            return table.make_listing(
                self.path, [row for row in rows if self.is_only_split or row.split == self.name]
            )
        listing = Listing.of(self.path, on_progress)
        return _label_by_folder(listing) if config.nested_classes else listing


def find_parts(root: Path) -> dict[str, Part]:
    """Return the parts named "train" and "val", or all images as "".

    Labels come from a table if there is one, else from folder names. Raises NotReadyError if a
    table is not valid or several sources of labels match, OSError if a folder cannot be read.
    """
    if root.is_file():
        return _divide_table(root)
    metadata = _list_metadata_tables(root)
    parts = _find_named_parts(root)
    if metadata:
        tables = [part.path for part in parts.values() if part.is_table]
        return _divide_table(_require_single_source(root, [*metadata, *tables]))
    return parts or {"": Part("", root)}


def list_split(config: DataConfig, split: str, on_progress: Say = do_nothing) -> Listing:
    """List the images of "train" or "val".

    With data.val_share and no other validation images, "val" is the fraction that is set aside.
    With data.fold, "val" is a part of the training images. With data.share, "train" is a fraction
    of all training images. Raises NotReadyError if the split has no images or its table is not
    valid, and OSError if a folder cannot be read.
    """
    parts = find_parts(Path(config.root))
    if config.fold or (config.val_share and "val" not in parts):
        complete = (parts.get("train") or parts[""]).listing(config, on_progress)
        if config.fold:
            part, parts_count = map(int, config.fold.split("/"))
            # the sizes of folds differ by at most one image, per class and in total
            chosen = _order_images(complete, config.val_seed) % parts_count == part - 1
        else:
            chosen = choose_images(complete, config.val_share, config.val_seed, complete.counts - 1)
        listing = complete.select(chosen == (split == "val"))
        if split == "val":
            listing = replace(listing, others=Counter())  # counted with the training images
    elif split in parts:
        listing = parts[split].listing(config, on_progress)
    else:
        raise make_error(config.root, f"has no images for {split}")
    if split == "train" and config.share < 1:
        chosen = choose_images(listing, config.share, config.val_seed, listing.counts)
        listing = listing.select(chosen)
    return listing


def choose_images(listing: Listing, fraction: float, seed: int, limits: np.ndarray) -> np.ndarray:
    """Return which images are in this fraction of each class, bool [N].

    The number is rounded, at least 1 and at most `limits` [C]. A larger fraction includes all
    images of a smaller fraction.
    """
    counts = np.minimum(np.maximum(1, (fraction * listing.counts + 0.5).astype(int)), limits)
    firsts = np.cumsum(listing.counts) - listing.counts
    return _order_images(listing, seed) < (firsts + counts)[listing.labels]


def _order_images(listing: Listing, seed: int) -> np.ndarray:
    """Return the rank of each image, int64 [N], ordered by class and then by digest.

    It depends only on the seed and the names: adding an image changes other ranks by at most one.
    """
    keys = [
        (label, hashlib.sha256(f"{seed}/{name}".encode(errors="surrogateescape")).digest())
        for label, name in zip(listing.labels.tolist(), listing.names, strict=True)
    ]
    indices = np.empty(len(listing), np.int64)
    indices[sorted(range(len(listing)), key=keys.__getitem__)] = np.arange(len(listing))
    return indices


def _divide_table(path: Path) -> dict[str, Part]:
    splits = {row.split for row in table.read_rows(path)}
    if splits == {""}:
        return {"": Part("", path)}
    return {
        split: Part(names[0], path, False)
        for split, synonyms in SYNONYMS.items()
        if (names := [name for name in synonyms if name in splits])
    }


def _find_named_parts(root: Path) -> dict[str, Part]:
    """Return the folders and tables that are named like a split or a synonym."""
    folders: dict[str, list[Path]] = {}
    tables: dict[str, list[Path]] = {}
    for name, word in sorted(find_split_folders(root).items()):
        folders.setdefault(word, []).append(root / name)
    for path in sorted(root.iterdir()):
        if path.suffix.lower() in TABLES and not path.is_dir():
            tables.setdefault(path.stem.lower(), []).append(path)
    parts = {}
    for split, synonyms in SYNONYMS.items():
        if names := [name for name in synonyms if name in {*folders, *tables}]:
            here = folders.get(names[0], [])
            listed = tables.get(names[0], [])
            labels = [*filter(table.has_labels, listed), *chain(*map(_list_metadata_tables, here))]
            if here and not labels:
                # a table named like another folder belongs to it; other tables may belong here
                others = chain(*(tables[name] for name in names[1:] if name not in folders))
                labels = [*here, *filter(table.has_labels, others)]
            chosen = _require_single_source(root, labels or listed)
            is_folder = chosen.is_dir()
            where = _unwrap(chosen, split) if is_folder else chosen
            parts[split] = Part(chosen.name if is_folder else names[0], where)
    return parts


def _unwrap(folder: Path, split: str) -> Path:
    """Return the folder with a split's class folders, such as train/train in some archives."""
    while len(inner := list_classes(folder)) == 1:
        words = chain(*(family.values() for family in find_split_families(inner).values()))
        only = folder / inner[0]
        if only.is_symlink() or not {*words} & {*SYNONYMS[split]} or not list_classes(only):
            break
        folder = only
    return folder


def _list_metadata_tables(folder: Path) -> list[Path]:
    tables = (folder / name for name in table.METADATA)
    return [path for path in tables if path.is_file() and table.has_labels(path)]


def _require_single_source(root: Path, paths: list[Path]) -> Path:
    """Return the only path. Raises NotReadyError if there are several."""
    if len(paths) > 1:
        names = " and ".join(str(path.relative_to(root)) for path in paths)
        clause = f"has several sources of labels: {names}"
        raise make_error(root, clause, Hint("keep one of them here, or name a table: data=TABLE"))
    return paths[0]


def _label_by_folder(listing: Listing) -> Listing:
    """Return the same images with the folder of each as its class: "animals/cat"."""
    names = listing.names
    images = zip(map(os.path.dirname, names), names, listing.sizes.tolist(), strict=True)
    return replace(
        Listing.build(listing.folder, images), others=listing.others, is_cached=listing.is_cached
    )
