"""Build class folders of symbolic links for a flat validation set."""

import re
from collections.abc import Iterator
from pathlib import Path

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import Command, Hint, Kind, NotReadyError
from resnet_recipes.base.reading import read_bytes
from resnet_recipes.data.files.listing import SUFFIXES
from resnet_recipes.data.root import list_classes


def build_val_tree(root: Path, class_map: Path, names: Path | None = None) -> Path:
    """Create and return ROOT-by-class to train on, with links train and val/CLASS/FILE.

    Nothing is moved or copied. The files are in val or val/images. Each line of `class_map` has a
    file name, with or without suffix, and its class, separated by comma, tab or space
    (LOC_val_solution.csv from Kaggle). Lines with a class alone belong to the files sorted by name
    (ILSVRC2012_validation_ground_truth.txt). Classes that are numbers, from 1, need `names`: a file
    with the class folder of each number, in order. Raises NotReadyError if a folder is missing,
    ROOT-by-class exists, a file has no class, or train lacks a class.
    """
    root = root.resolve()
    for folder in (root / "train", root / "val"):
        if not folder.is_dir():
            layout = Hint("this needs train/ with class folders, and val/ with image files")
            raise NotReadyError.at(folder, "", layout, Kind.ABSENT)
    val = root / "val"
    if (val / "images").is_dir():  # as in Tiny ImageNet
        val /= "images"
    files = sorted(
        path.name
        for path in val.iterdir()
        if path.is_file() and path.name.lower().endswith(SUFFIXES)
    )
    target = root.with_name(f"{root.name}-by-class")
    if not files:
        raise NotReadyError.at(val, "has no image files outside of class folders")
    if target.exists():
        fix = (f"data={target}", Command(f"rm -r {target}"))
        raise NotReadyError.at(target, "already exists", fix)
    classes = list_classes(root / "train")
    class_of = _read_classes(class_map, files, names)
    if missing := [file for file in files if file not in class_of]:
        clause = f"has no class for {len(missing)} of {len(files)} files, such as {missing[0]}"
        raise NotReadyError.at(class_map, clause)
    if unknown := sorted({*class_of.values()} - {*classes}):
        clause = f"names classes that {root / 'train'} lacks: {', '.join(unknown[:5])}"
        raise NotReadyError.at(class_map, clause)
    with atomic.create_folder(target) as draft:
        for name in classes:
            (draft / "val" / name).mkdir(parents=True)
        for file, name in class_of.items():
            (draft / "val" / name / file).symlink_to(val / file)
        (draft / "train").symlink_to(root / "train")
    return target


def _read_lines(path: Path) -> list[str]:
    lines = read_bytes(path).decode(errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _read_classes(class_map: Path, files: list[str], names: Path | None) -> dict[str, str]:
    rows = [re.split(r"[\s,;]+", line) for line in _read_lines(class_map)]
    if all(len(row) == 1 for row in rows):
        if len(rows) != len(files):
            clause = f"has {len(rows)} lines with one class each for {len(files)} files"
            raise NotReadyError.at(class_map, clause)
        rows = [[file, *row] for file, row in zip(files, rows, strict=True)]
    by_stem = {Path(file).stem: file for file in files}
    pairs = [
        (by_stem[stem], row[1])
        for row in rows
        if len(row) > 1 and (stem := Path(row[0]).stem) in by_stem
    ]
    if pairs and all(name.isdecimal() for _, name in pairs):
        pairs = list(_replace_numbers(class_map, pairs, names))
    return dict(pairs)


def _replace_numbers(
    class_map: Path, pairs: list[tuple[str, str]], names: Path | None
) -> Iterator[tuple[str, str]]:
    """Yield the files with class names instead of class numbers.

    ImageNet class numbers do not follow the sorted folder names, so they are never guessed.
    """
    if names is None:
        clause = "numbers its classes but does not name their folders"
        lists = "it lists the class folder of each number (ImageNet: meta.mat by ILSVRC2012_ID)"
        fix = ("--synsets FILE", Hint(lists))
        raise NotReadyError.at(class_map, clause, fix)
    folders = [line.split()[0] for line in _read_lines(names)]
    for file, number in pairs:
        if not 1 <= int(number) <= len(folders):
            clause = f"gives class {number}, but {names} has only {len(folders)} lines"
            raise NotReadyError.at(class_map, clause)
        yield file, folders[int(number) - 1]
