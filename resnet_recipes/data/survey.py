"""Check the images of a run before it starts: files, or train.beton and val.beton."""

import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import compress
from pathlib import Path

import numpy as np

from resnet_recipes.base.cores import get_available_memory
from resnet_recipes.base.errors import (
    Change,
    Command,
    Fix,
    Hint,
    Note,
    NotReadyError,
    Problem,
    Value,
)
from resnet_recipes.base.text import Say, do_nothing, format_bytes, format_count, join_first
from resnet_recipes.data.base import SAMPLE_SIZE, DataConfig, DataFacts
from resnet_recipes.data.beton import Beton, find_pair_problems
from resnet_recipes.data.beton.samples import (
    Samples,
    find_quasi_random_problem,
    fits_memory,
    open_samples,
)
from resnet_recipes.data.files.class_folders import find_folder_problems, find_inner_folders
from resnet_recipes.data.files.copies import MAX_VAL_IMAGES, find_copies
from resnet_recipes.data.files.layout import Part, find_parts, list_split
from resnet_recipes.data.files.listing import Listing, iterate_images
from resnet_recipes.data.images.decode import SUFFIXES
from resnet_recipes.data.root import (
    CONVERT_HINT,
    DEBRIS,
    LAYOUT,
    SPLITS,
    TABLES,
    explain_unreadable,
    find_split_folders,
    list_classes,
    make_problem,
)

#: Suggested value of data.val_share.
_SUGGESTED_VAL_SHARE = 0.1

#: How to read the photographs of an iPhone.
_HEIC_ADVICE = (
    Command("pip install pillow-heif"),
    Hint("makes .heic readable; rename JPEG files to .jpg"),
)

#: Images of a class below which its accuracy is mostly chance.
MIN_CLASS_IMAGES = 20


def survey_files(
    config: DataConfig, on_progress: Say = do_nothing, compares: bool = True
) -> DataFacts:
    """List the images at `config.root`. Raises NotReadyError if a run cannot use them.

    With `compares`, reads a few validation images to detect copies of training images.
    """
    try:
        facts, train, val = _survey_listings(config, on_progress)
        if compares and (copies := find_copies(train, val)):
            compared = min(len(val), MAX_VAL_IMAGES)
            share = f"{len(copies)} of {compared} compared, such as {copies[0]}"
            command = Command.of("resnet-recipes", "doctor", "data", config.root)
            note = Note(f"validation images identical to training images: {share}", command)
            facts = replace(facts, notes=(*facts.notes, note))
        return facts
    except OSError as error:  # a folder is unreadable or has just vanished
        raise NotReadyError([explain_unreadable(error)]) from None


def _survey_listings(config: DataConfig, on_progress: Say) -> tuple[DataFacts, Listing, Listing]:
    root = Path(config.root)
    parts = find_parts(root)
    NotReadyError.raise_if_any(_find_part_problems(root, parts))
    NotReadyError.raise_if_any(_find_split_problems(config, parts))
    lacks_val = "val" not in parts and not config.sets_aside
    if lacks_val:  # the suggested fraction must suit the images
        config = replace(config, val_share=_SUGGESTED_VAL_SHARE)
    train, val = listings = [list_split(config, split, on_progress) for split in SPLITS]
    # images set aside by val_share have no part
    part_listings = list(zip(parts.values(), listings, strict=False))
    NotReadyError.raise_if_any(
        _make_empty_problem(part.path, "has no images", train.others + val.others, LAYOUT)
        for part, listing in part_listings
        if not listing.classes  # with data.nested_classes, folders without images are not classes
    )
    if config.nested_classes is None:
        doubts = (
            doubt
            for part, listing in part_listings
            if not part.is_table
            for doubt in find_folder_problems(part.path, listing)
        )
        NotReadyError.raise_if_any([next(doubts, None)])  # why folders are probably not classes
    problems = list(_find_class_problems(config, train, val))
    has_table = any(part.is_table for part in parts.values())
    if has_table and "val" in parts and (twice := {*train.paths} & {*val.paths}):
        clause = f"lists {len(twice):,} images for both training and validation: {min(twice)}"
        problems.append(make_problem(root, clause, Hint("keep each image in one split")))
    if lacks_val:
        others = [problem for problem in problems if problem.key != "data.val_share"]
        problems = others or [_make_missing_val_problem(config, problems)]
    NotReadyError.raise_if_any(problems)
    facts = DataFacts(
        "torchvision",
        root,
        len(train),
        len(val),
        train.classes,
        (*_describe_source(root, parts, has_table), *_iterate_notes(config, train, val, has_table)),
        train.digest,
        val.digest,
        tuple(map(int, train.counts)),
        tuple(_describe_details(config, parts, train, val)),
        train.sample(SAMPLE_SIZE),
    )
    return facts, train, val


def _find_part_problems(root: Path, parts: Mapping[str, Part]) -> Iterator[Problem]:
    flat = [part.path for part in parts.values() if not (part.is_table or list_classes(part.path))]
    if not flat:
        return
    folder = flat[0] if len(flat) == 1 else root
    clause = "contains images without class folders"
    some_image = next(iterate_images(folder), None)
    quoted = shlex.quote(str(root))
    if some_image is None:
        yield make_problem(folder, "has no images", Hint(LAYOUT))
    elif tables := [*_list_tables(flat[0]), *_list_tables(root)]:
        clause = f"{clause}, and a table that is not read"
        yield make_problem(folder, clause, Change(f"data={tables[0]}"))
    elif folder != root and some_image.startswith("ILSVRC2012_val_"):
        fix = Command(f"resnet-recipes doctor data {quoted} --fix-val LOC_val_solution.csv")
        yield make_problem(folder, f"{clause}; Kaggle's list can sort them", fix)
    else:
        more = "or a table with the columns path and label: data=TABLE"
        if folder.parent == root and {*list_classes(root)} > {*find_split_folders(root)}:
            more = f"or, if {folder.name} is a class: mkdir set && ln -s {quoted} set/train"
        elif folder == root / "val":
            command = f"resnet-recipes doctor data {quoted} --fix-val MAP"
            more = f"or, if a file MAP lists the class of each image: {command}"
        yield make_problem(folder, clause, (Hint(LAYOUT), Hint(more)))


def _list_tables(folder: Path) -> list[Path]:
    """Return the tables in a folder; empty if it is a table itself."""
    if folder.is_file():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in TABLES)


def _find_split_problems(config: DataConfig, parts: dict[str, Part]) -> Iterator[Problem]:
    if not parts.keys() - {"val"}:
        yield make_problem(config.root, "has no training images", Hint(LAYOUT))
    if "val" in parts and config.val_share:
        clause = f"is for data without validation images, and {parts['val'].path} has some"
        remove = (Value("0"), Hint("or remove the setting"))
        yield Problem("data.val_share", config.val_share, clause, remove)


def _make_missing_val_problem(config: DataConfig, problems: Sequence[Problem]) -> Problem:
    """Return the problem of images without a validation split.

    `problems` are those of the suggested fraction, `config.val_share`.
    """
    setting = f"data.val_share={config.val_share}"
    fix: Fix = (Change(setting), Hint("sets a tenth of each class aside for validation"))
    if problems:
        fix = Hint(problems[0].about(setting))
    return make_problem(config.root, "has no validation images", fix)


def _find_class_problems(config: DataConfig, train: Listing, val: Listing) -> Iterator[Problem]:
    """Yield the problems with the classes, and the differences between the splits.

    Labels are positions in the sorted list, so one extra class shifts them.
    """
    in_train, in_val = map(_list_used_classes, (train, val))
    if empty := sorted(
        {
            os.path.relpath(os.path.join(listing.folder, name), config.root)
            for listing in (train, val)
            for name in {*listing.classes} - in_train - in_val
        }
    ):
        these = "this folder" if len(empty) == 1 else "these folders"
        clause = f"has no images in {join_first(empty)}"
        hint = f"add images, or remove {these}"
        yield _make_empty_problem(config.root, clause, train.others + val.others, hint)
    annotations = Path(config.root) / "val/val_annotations.txt"
    if in_val == {"images"} and annotations.is_file():  # Tiny ImageNet
        words = ("resnet-recipes", "doctor", "data", config.root, "--fix-val", str(annotations))
        clause = "has no class folders in val; its list can sort the images"
        yield make_problem(config.root, clause, Command.of(*words))
        return
    if not config.sets_aside:
        yield from _find_split_difference_problems(config.root, train, val)
    if len(train.classes) < 2:
        clause = f"has one class, {train.classes[0]}; at least 2 are needed"
        yield make_problem(config.root, clause, _suggest_classes(config, train))
    if odd := [ascii(name) for name in train.classes if not name.isprintable()]:
        clause = f"has class names that are not printable UTF-8 text: {join_first(odd)}"
        yield make_problem(
            f"{config.root}/train", clause, Hint("rename these folders in both splits")
        )
    if config.sets_aside and (alone := _list_single_classes(config, train, val)):
        clause = f"needs at least two images per class; these have one: {join_first(alone)}"
        key = "data.fold" if config.fold else "data.val_share"
        value = config.fold or config.val_share
        yield Problem(key, value, clause, Hint("add images, or remove the class"))


def _suggest_classes(config: DataConfig, train: Listing) -> Fix:
    """Return how to get several classes from images of one class."""
    folder = os.path.join(train.folder, train.classes[0])
    if not os.path.isdir(folder):
        return Hint("every row of the table has this label")
    if not train.has_inner or len(list_classes(Path(folder))) < 2:
        return Hint("add a folder of images for each other class"), Hint(LAYOUT)
    if config.sets_aside:
        return Change(f"data={folder}"), Hint("contains several class folders")
    return Change("data.nested_classes=true"), Hint("it makes each inner folder a class")


def _list_used_classes(listing: Listing) -> set[str]:
    return {*compress(listing.classes, listing.counts)}


def _find_split_difference_problems(root: str, train: Listing, val: Listing) -> Iterator[Problem]:
    others = train.others + val.others
    alone = dict[str, list[str]]()
    for split, here, other, there in (("train", train, "val", val), ("val", val, "train", train)):
        missing = sorted(_list_used_classes(here) - _list_used_classes(there))
        if empty := [name for name in missing if name in there.classes]:
            folders = join_first([f"{other}/{name}" for name in empty])
            clause = f"has no images in {folders}, but has some in {split}"
            hint = f"add images to {other}, or remove these classes from {split}"
            yield _make_empty_problem(root, clause, others, hint)
        if absent := [name for name in missing if name not in there.classes]:
            alone[split] = absent
    if alone:
        clauses = [f"{join_first(names)} only in {split}" for split, names in alone.items()]
        clause = f"has {' and '.join(clauses)}{_describe_unread(others)}"
        ours = {name.casefold(): name for name in alone.get("train", ())}
        meant = [
            f"{ours[near[0]]} for {name}"
            for name in alone.get("val", ())[:5]
            if (near := get_close_matches(name.casefold(), ours, 1, 0.8))
        ]
        need = "train and val need exactly the same class names"
        hint = f"in val, did you mean {' and '.join(meant)}?" if meant else need
        fix = "rename or remove these classes, or add their images"
        yield make_problem(root, clause, (Hint(hint), Hint(fix)))


def _list_single_classes(config: DataConfig, train: Listing, val: Listing) -> list[str]:
    """Return the classes with one image in both splits together, before data.share."""
    both = zip(train.classes, train.counts, val.counts, strict=True)
    alone = [name for name, *counts in both if sum(counts) == 1]
    if not alone or config.share == 1:
        return alone
    unshared = replace(config, share=1.0)
    return _list_single_classes(unshared, list_split(unshared, "train"), val)


def _iterate_notes(
    config: DataConfig, train: Listing, val: Listing, has_table: bool
) -> Iterator[Note]:
    if others := train.others + val.others:
        text = f"ignored because of their suffixes: {_count_suffixes(others)}"
        yield Note(text, _HEIC_ADVICE if ".heic" in others else ())
    if not (has_table or config.nested_classes) and _has_nested_classes(train):
        yield Note(
            "some class folders contain folders, which can be classes", "data.nested_classes=true"
        )
    similar = defaultdict[str, list[str]](list)
    for name in train.classes:
        similar[name.casefold().removesuffix(" - copy")].append(name)
    for names in filter(lambda names: len(names) > 1, similar.values()):
        yield Note(f"classes {' and '.join(names)} have almost the same name")
    yield from describe_imbalance(train.counts, config)


def describe_imbalance(counts: np.ndarray, config: DataConfig) -> Iterator[Note]:
    """Yield a note if the largest class has at least three times the images of the smallest.

    Only with data.sampling=natural.
    """
    largest = int(counts.max())
    smallest = int(counts[counts > 0].min())
    if largest < 3 * smallest or config.sampling != "natural":
        return
    few = int(((counts > 0) & (counts < MIN_CLASS_IMAGES)).sum())
    rare = f"; {few} of them fewer than {MIN_CLASS_IMAGES}" if few else ""
    text = f"classes have from {smallest:,} to {largest:,} training images{rare}"
    yield Note(text, "data.sampling=sqrt")


def _has_nested_classes(listing: Listing) -> bool:
    """Return whether inner folders could be classes.

    A class folder must have several, and no two class folders may share a name.
    """
    inside = find_inner_folders(listing).values()
    folders = [name for names in inside for name in names]
    return len(folders) == len({*folders}) and any(len(names) > 1 for names in inside)


def _describe_source(root: Path, parts: dict[str, Part], has_table: bool) -> Iterator[Note]:
    """Yield the source of labels if a folder also has tables, and the images without a label."""
    stray = sorted(
        os.path.relpath(entry.path, root)
        for folder in (() if has_table else {root, *(part.path for part in parts.values())})
        for entry in os.scandir(folder)
        if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(DEBRIS)
        if entry.is_file()
    )
    if stray:
        count = format_count(len(stray), "image")
        yield Note(f"{count} outside class folders (ignored): {join_first(stray)}")
    labels = [
        str(part.path) if part.is_table else f"the names of folders in {part.path}"
        for part in parts.values()
    ]
    unread = [str(path) for path in _list_tables(root) if str(path) not in labels]
    if unread or (root.is_dir() and has_table):
        unread_note = f", not from {join_first(unread)}" if unread else ""
        yield Note(f"labels come from {' and '.join(dict.fromkeys(labels))}{unread_note}")


def _describe_details(
    config: DataConfig, parts: dict[str, Part], train: Listing, val: Listing
) -> Iterator[str]:
    if config.sets_aside:
        part = f"part {config.fold}" if config.fold else f"a fraction of {config.val_share:g}"
        yield (
            f"{len(val):,} images are set aside for validation, {part} of each class, "
            f"the same with every seed (data.val_seed={config.val_seed})"
        )
        if "val" in parts:
            yield f"{parts['val'].name} is not used: data.fold divides the training images"
    elif (name := parts["val"].name) != "val":
        yield f"validation images come from {name}"
    if config.share < 1:
        yield (
            f"{len(train):,} images are trained on, a fraction of {config.share:g} of each class, "
            f"the same with every seed (data.val_seed={config.val_seed})"
        )
    if splits := [
        split for split, listing in zip(SPLITS, (train, val), strict=True) if listing.is_cached
    ]:
        yield f"{' and '.join(splits)}: using the cached listing, since no folder has changed"


def _make_empty_problem(root: object, clause: str, others: Counter, hint: str) -> Problem:
    """Return the problem of folders without images; a package may read their other files."""
    fix = _HEIC_ADVICE if others.keys() & {".heic", ".heif"} else Hint(hint)
    return make_problem(root, f"{clause}{_describe_unread(others)}", fix)


def _describe_unread(others: Counter) -> str:
    return f" (not read: {_count_suffixes(others)})" if others else ""


def _count_suffixes(others: Counter) -> str:
    """Return the most common suffixes of other files: '12 .heic, 1 .txt'."""
    common = others.most_common(5)
    return ", ".join(f"{count:,} {kind or 'without a suffix'}" for kind, count in common)


def survey_betons(config: DataConfig) -> DataFacts:
    """Open both files; takes seconds, decodes nothing.

    Raises NotReadyError if one cannot be used, or they do not match each other or the settings.
    """
    root = Path(config.root)
    train = open_samples(root / "train.beton")
    val = open_samples(root / "val.beton")
    NotReadyError.raise_if_any(_find_beton_problems(config, train.beton, val.beton))
    return DataFacts(
        "ffcv",
        root,
        len(train),
        len(val),
        train.beton.classes,
        tuple(_iterate_beton_notes(config, train, val.beton)),
        train.digest,
        val.digest,
        tuple(np.bincount(train.beton.labels, minlength=len(train.beton.classes)).tolist()),
        ("train.beton fits into memory: read from disk once",) if fits_memory(train.beton) else (),
    )


def _find_beton_problems(config: DataConfig, train: Beton, val: Beton) -> Iterator[Problem]:
    """Yield why these two files cannot be used with these settings."""
    yield from find_pair_problems(train, val)
    if config.val_share:
        clause = "applies only to image files; val.beton already exists"
        fix = Hint(f"{CONVERT_HINT} val_share=0.1")
        yield Problem("data.val_share", config.val_share, clause, fix)
    for key, default in {"share": 1.0, "fold": ""}.items():
        if (value := getattr(config, key)) != default:
            fix = Hint("data=PATH, the image files")
            yield Problem(f"data.{key}", value, "applies only to image files", fix)
    if config.on_bad_image == "skip":
        clause = (
            "applies only to image files; if one sample of a .beton file is damaged, the file "
            "must be made again"
        )
        yield Problem("data.on_bad_image", "skip", clause, Value("error"))
    if config.order == "quasi_random" and (problem := find_quasi_random_problem(train)):
        yield problem


def _iterate_beton_notes(config: DataConfig, samples: Samples, val: Beton) -> Iterator[Note]:
    train = samples.beton
    yield from describe_imbalance(np.bincount(train.labels), config)
    if not fits_memory(train):
        text = (
            f"train.beton ({format_bytes(train.content.size)}) does not fit into memory "
            f"({format_bytes(get_available_memory())} free): read from disk in every epoch"
        )
        yield Note(text, "" if config.order == "quasi_random" else "data.order=quasi_random")
    if samples.small:
        yield Note(
            f"crops at least twice as large as their output are read from {samples.small.path.name}"
        )
    for beton in (train, val):
        if beton.sidecar is None:
            yield Note(
                f"{beton.path.name} has no sidecar (not made by resnet-recipes convert): no class "
                "names, and damage may go unnoticed"
            )
