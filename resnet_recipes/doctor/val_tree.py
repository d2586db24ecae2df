"""Build class folders of links for a flat validation set; nothing is moved or copied."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.files.listing import SUFFIXES, class_names


def build_val_tree(root: Path, class_map: Path, names: Path | None = None) -> Path:
    """Create and return ROOT-by-class to train on, with links train and val/CLASS/FILE.

    Each line of `class_map` has a file name, with or without suffix, and its class, separated by
    comma, tab or space (Kaggle's LOC_val_solution.csv); or only a class, for the files sorted by
    name (the development kit's ILSVRC2012_validation_ground_truth.txt). Classes given as numbers,
    from 1, need `names`: a file with the class folder of each number, in order. Raises
    NotReadyError, creating nothing, if a file has no class or train lacks one.
    """
    root = Path(root).resolve()
    classes = class_names(root / "train")
    files = sorted(
        entry.name
        for entry in os.scandir(root / "val")
        if entry.is_file() and entry.name.lower().endswith(SUFFIXES)
    )
    target = root.with_name(f"{root.name}-by-class")
    if not files:
        raise NotReadyError.at(root / "val", "has no image files outside of class folders")
    if target.exists():
        raise NotReadyError.at(
            target, "already exists", f"train with data={target}, or remove it:  rm -r {target}"
        )
    wanted = _read(class_map, files, names)
    missing = [file for file in files if file not in wanted]
    if missing:
        raise NotReadyError.at(
            class_map,
            f"has no class for {len(missing)} of {len(files)} files, such as {missing[0]}",
        )
    strange = sorted({wanted[file] for file in files} - set(classes))
    if strange:
        raise NotReadyError.at(
            class_map, f"names classes that {root / 'train'} lacks: {', '.join(strange[:5])}"
        )
    partial = target.with_name(f"{target.name}.partial")
    for name in classes:
        (partial / "val" / name).mkdir(parents=True, exist_ok=True)
    for file in files:
        link = partial / "val" / wanted[file] / file
        link.unlink(missing_ok=True)
        link.symlink_to(root / "val" / file)
    (partial / "train").unlink(missing_ok=True)
    (partial / "train").symlink_to(root / "train")
    partial.rename(target)
    return target


def _read(class_map: Path, files: list[str], names: Path | None) -> dict[str, str]:
    """Return the class of each file in the map."""
    try:
        lines = Path(class_map).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NotReadyError.at(class_map, f"cannot be read ({error})") from error
    rows = [re.split(r"[\s,;]+", line.strip()) for line in lines if line.strip()]
    if all(len(row) == 1 for row in rows):
        if len(rows) != len(files):
            raise NotReadyError.at(
                class_map, f"has {len(rows)} lines with one class each for {len(files)} files"
            )
        rows = [[file, row[0]] for file, row in zip(files, rows, strict=True)]
    by_stem = {Path(file).stem: file for file in files}
    pairs = [
        (by_stem[stem], row[1])
        for row in rows
        if len(row) > 1 and (stem := Path(row[0]).stem) in by_stem
    ]
    if pairs and all(name.isdigit() for _, name in pairs):
        pairs = list(_named(class_map, pairs, names))
    return dict(pairs)


def _named(
    class_map: Path, pairs: list[tuple[str, str]], names: Path | None
) -> Iterator[tuple[str, str]]:
    """Replace numbers by names.

    ImageNet's numbers do not follow the sorted folder names, so they are never guessed.
    """
    if names is None:
        fix = (
            "add --synsets FILE: the class folder of each number, one per line (ImageNet: "
            "meta.mat by ILSVRC2012_ID)"
        )
        raise NotReadyError.at(
            class_map, "numbers its classes; which folder each number means is not said", fix
        )
    folders = [
        line.split()[0]
        for line in Path(names).read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    for file, number in pairs:
        if not 1 <= int(number) <= len(folders):
            raise NotReadyError.at(
                class_map, f"gives class {number}, but {names} has only {len(folders)} lines"
            )
        yield file, folders[int(number) - 1]
