"""The output files of a conversion, and their state after an interrupted attempt."""

import hashlib
import os
import shlex
from dataclasses import asdict, dataclass
from itertools import chain, takewhile
from pathlib import Path

import numpy as np

from resnet_recipes.base.errors import Hint, NotReadyError, RecipeError
from resnet_recipes.base.paths import parse_new_path
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.beton import get_half_path, open_beton
from resnet_recipes.data.beton.sidecar import make_half_source
from resnet_recipes.data.beton.writer import get_partial_path, read_journal
from resnet_recipes.data.convert.encode import ConvertOptions, OriginalImages
from resnet_recipes.data.convert.shards import find_shards
from resnet_recipes.data.files.class_folders import find_folder_problems
from resnet_recipes.data.files.layout import find_parts, list_split
from resnet_recipes.data.files.listing import SUFFIXES
from resnet_recipes.data.root import LAYOUT, SPLITS, find_root_problem
from resnet_recipes.data.survey import survey_files

#: Options that may change when an attempt is resumed.
_NEUTRAL_OPTIONS = {"workers": 0, "on_bad_image": ""}


@dataclass(frozen=True)
class Split:
    """One .beton file to make."""

    name: str  # "train", "val", or the stem of the file name
    source: OriginalImages
    target: Path
    options: ConvertOptions
    is_half: bool = False  # small level of the previous file

    def __len__(self) -> int:
        return len(self.source.images.labels)

    def order(self) -> np.ndarray:
        """Return the order of the images in the file: a permutation, int64 [images]."""
        if self.options.shuffle:
            return self.source.shuffle(np.random.default_rng(self.options.seed))
        return np.arange(len(self))

    @property
    def fingerprint(self) -> str:
        """A digest of the images."""
        return (
            make_half_source(self.source.fingerprint) if self.is_half else self.source.fingerprint
        )

    def compute_key(self) -> str:
        """Return a digest of everything that must be equal when an attempt is resumed."""
        settings = sorted((asdict(self.options) | _NEUTRAL_OPTIONS).items())
        content = repr((settings, self.fingerprint, self.source.classes))
        return hashlib.sha256(content.encode()).hexdigest()

    def read_journal(self) -> np.ndarray:
        """Return the records in the journal of an interrupted attempt, one per image."""
        return read_journal(self.target, self.compute_key())

    def is_finished(self) -> bool:
        """Return whether an earlier attempt finished this file, with these options."""
        if get_partial_path(self.target).exists():
            return False
        try:
            sidecar = open_beton(self.target).sidecar
        except NotReadyError:
            return False
        if sidecar is None or (sidecar.skipped and self.options.on_bad_image == "error"):
            return False
        return (
            sidecar.options | _NEUTRAL_OPTIONS == asdict(self.options) | _NEUTRAL_OPTIONS
            and sidecar.source_sha256 == self.fingerprint
            and tuple(sidecar.classes) == tuple(self.source.classes)
        )


def plan_files(src: Path, dst: Path, options: ConvertOptions) -> list[list[Split]]:
    """Return the files to make: DST/train.beton and DST/val.beton if SRC has both splits, else DST.

    A file comes with its small level, if it has one: both are made from one decode. Raises
    NotReadyError if SRC cannot be read, or RecipeError if DST does not fit SRC or has other files,
    or if options are wrong.
    """
    RecipeError.raise_if_any(options.problems())
    sources = _find_sources(src, options)
    if len(sources) == 1 and dst.suffix != ".beton":
        rule = f"must be one file that ends in .beton: {src} does not have two splits"
        fix = shlex.quote(str(dst / f"{src.stem}.beton"))
        raise RecipeError.of("DST", dst, rule, fix)
    if len(sources) == 2 and (not dst.is_dir() or dst.samefile(src) or _has_other_files(dst)):
        parse_new_path("DST", str(dst), is_folder=True)
    files = [
        [Split(name or dst.stem, source, dst / f"{name}.beton" if name else dst, options)]
        for name, source in sources.items()
    ]
    if options.levels == 2:
        first = files[0][0]
        half = get_half_path(first.target)
        files[0].append(Split(f"{first.name}.half", first.source, half, options, is_half=True))
    existing = [split for split in chain(*files) if os.path.lexists(split.target)]
    if not all(split.is_finished() for split in existing):
        parse_new_path("DST", str(dst if len(sources) == 2 else existing[0].target))
    return files


def _has_other_files(folder: Path) -> bool:
    """Return whether a folder contains more than a conversion, hidden files and `lost+found`."""
    betons = [folder / f"{split}.beton" for split in SPLITS]
    prefixes = (
        ".",
        "lost+found",
        *(path.name for path in chain(betons, map(get_half_path, betons))),
    )
    return any(not path.name.startswith(prefixes) for path in folder.iterdir())


def count_finished(files: list[list[Split]]) -> int:
    """Return how many files an interrupted attempt finished."""
    return sum(
        1 for _ in takewhile(lambda levels: all(split.is_finished() for split in levels), files)
    )


def _find_sources(src: Path, options: ConvertOptions) -> dict[str, OriginalImages]:
    """Return the images under "train" and "val", or all under ""."""
    if src.suffix == ".beton":
        return {"": OriginalImages.from_beton(src)}
    config = DataConfig(
        root=str(src),
        val_share=options.val_share,
        val_seed=options.val_seed,
        nested_classes=options.nested_classes,
    )
    if not src.is_dir() and (problem := find_root_problem(str(src))):
        raise NotReadyError([problem._replace(key="SRC")])
    if shards := find_shards(src):
        return shards
    parts = find_parts(src)
    if "val" in parts or options.val_share:
        survey_files(config)
        return {
            split: OriginalImages.from_listing(list_split(config, split), src) for split in SPLITS
        }
    if all((src / f"{split}.beton").is_file() for split in SPLITS):
        return {split: OriginalImages.from_beton(src / f"{split}.beton") for split in SPLITS}
    part = parts.get("train") or parts[""]
    listing = part.listing(config)
    if not len(listing):
        clause = f"has no images ({', '.join(SUFFIXES)}) in class folders"
        raise NotReadyError.at(src, clause, Hint(LAYOUT.replace("data.val_share", "val_share")))
    if options.nested_classes is None and not part.is_table:
        NotReadyError.raise_if_any(find_folder_problems(part.path, listing))
    return {"": OriginalImages.from_listing(listing, src)}
