"""The layout of a dataset: where the images of each split are, and where their labels come from."""

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.files import table
from resnet_recipes.data.files.listing import Listing, Tell
from resnet_recipes.data.root import SYNONYMS, TABLES


class Part(NamedTuple):
    """The images of a split: a folder of class folders, or rows of a table."""

    name: str  # as the folder or the table calls it
    place: Path
    is_whole: bool = True  # False: the table has other splits too

    @property
    def is_table(self) -> bool:
        """Whether the labels come from a table."""
        return self.place.suffix in TABLES and self.place.is_file()

    def listing(self, config: DataConfig, tell: Tell) -> Listing:
        """List the images. Raises NotReadyError, or OSError."""
        if self.is_table:
            rows = [
                row for row in table.rows(self.place) if self.is_whole or row.split == self.name
            ]
            return table.listing(self.place, rows)
        found = Listing.of(self.place, tell)
        return _by_folder(found) if config.nested_classes else found


def parts(root: Path) -> dict[str, Part]:
    """Return the parts named "train" and "val", or all images as "".

    Raises NotReadyError or OSError.
    """
    if (place := _table_of(root)).is_file():
        splits = {row.split for row in table.rows(place)}
        if splits == {""}:
            return {"": Part("", place)}
        return _known({name: Part(name, place, False) for name in splits})
    there = {}
    for name in sorted(os.listdir(root)):
        path = root / name
        if path.is_dir() or path.suffix in TABLES:
            name = name if path.is_dir() else path.stem
            there.setdefault(name.lower(), Part(name, _table_of(path)))
    return _known(there) or {"": Part("", root)}


def listing_of(config: DataConfig, split: str, tell: Tell = lambda line: None) -> Listing:
    """List the images of "train" or "val".

    With data.val_share, validation images are those set aside.

    Raises NotReadyError, or OSError.
    """
    there = parts(Path(config.root))
    if config.val_share and "val" not in there:
        whole = (there.get("train") or there[""]).listing(config, tell)
        return whole.chosen(set_aside(whole, config.val_share, config.val_seed) == (split == "val"))
    return there[split].listing(config, tell)


def set_aside(whole: Listing, share: float, seed: int) -> np.ndarray:
    """Return which images to set aside, bool [N].

    A fraction `share` of each class, at least one and never all.

    The choice depends only on the seed and the names: adding an image moves at most one other.
    """
    chosen, first = np.zeros(len(whole), bool), 0
    keys = [
        hashlib.sha256(f"{seed}/{name}".encode(errors="surrogateescape")).digest()
        for name in whole.names
    ]
    for count in whole.counts.tolist():
        wanted = min(max(1, int(share * count + 0.5)), count - 1)
        order = sorted(range(first, first + count), key=keys.__getitem__)
        chosen[order[: max(0, wanted)]] = True
        first += count
    return chosen


def _table_of(place: Path) -> Path:
    """Return the metadata file in a folder, if it has labels; otherwise `place` itself."""
    found = (place / name for name in table.METADATA)
    return next((path for path in found if path.is_file() and table.has_labels(path)), place)


def _known(there: dict[str, Part]) -> dict[str, Part]:
    """Return the parts with the name of a split or a synonym, under our names of the splits."""
    named = {}
    for split, synonyms in SYNONYMS.items():
        if found := [there[name] for name in synonyms if name in there]:
            named[split] = found[0]
    return named


def _by_folder(found: Listing) -> Listing:
    """Return the same images with the folder of each as its class: "animals/cat"."""
    names = found.names
    made = Listing.made(
        found.folder, zip(map(os.path.dirname, names), names, found.sizes.tolist(), strict=True)
    )
    return Listing(
        made.folder,
        made.classes,
        made.text,
        made.ends,
        made.sizes,
        made.counts,
        found.others,
        found.kept,
    )
