"""Class folders that are probably not classes: splits, or copies of a dataset."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path

from resnet_recipes.base.errors import Change, Command, Hint, Problem
from resnet_recipes.base.text import join_first
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.data.root import (
    LAYOUT,
    SPLITS,
    SYNONYMS,
    find_split_families,
    is_train_and_val,
    make_problem,
)

_CLASSES = (Change("data.nested_classes=false"), Hint("if they are classes"))


def find_folder_problems(root: Path, listing: Listing) -> Iterator[Problem]:
    """Yield why the class folders in `root` look like something else, as one problem.

    Otherwise a network would learn to distinguish the splits of a dataset, with an accuracy that
    looks plausible.
    """
    inside = find_inner_folders(listing)
    if similar := _find_similar(inside):
        yield _make_repetition_problem(
            root, listing, similar, {*chain(*(inside[name] for name in similar))}
        )
        return
    families = find_split_families(listing.classes).values()
    if named := next(filter(is_train_and_val, families), None):
        clause = f"has class folders with names of splits: {join_first(sorted(named))}"
        yield make_problem(root, clause, (Hint(LAYOUT), *_CLASSES))


def find_inner_folders(listing: Listing) -> dict[str, set[str]]:
    """Return the image folders inside each class folder with few other images."""
    if not listing.has_inner:
        return {}
    images: dict[str, Counter[str]] = defaultdict(Counter)
    for name in listing.names:
        folder, _, rest = name.partition("/")
        inner, separator, _ = rest.partition("/")
        images[folder][inner if separator else ""] += 1
    return {
        folder: counts.keys() - {""}
        for folder, counts in images.items()
        if counts.total() > 2 * counts[""]
    }


def _find_similar(inside: Mapping[str, Collection[str]]) -> list[str]:
    """Return the class folders that share at least two, and half, of their inner folders."""
    count = Counter(name.casefold() for names in inside.values() for name in names)
    shared = {
        folder: sum(count[name.casefold()] > 1 for name in names)
        for folder, names in inside.items()
    }
    folders = [name for name, n in shared.items() if n > 1 and 2 * n >= len(inside[name])]
    return sorted(folders) if len(folders) > 1 else []


def _make_repetition_problem(
    root: Path, listing: Listing, similar: list[str], inner: set[str]
) -> Problem:
    clause = f"has the same folders ({join_first(sorted(inner))}) in {join_first(similar)}"
    if any(map(is_train_and_val, find_split_families(inner).values())):
        return make_problem(root, f"{clause}: a split for each class", (Hint(LAYOUT), *_CLASSES))
    if pair := _choose_pair(listing, similar):
        links = (
            Command.of("ln", "-s", name, str(root / split))
            for split, name in zip(SPLITS, pair, strict=True)
        )
        fix: tuple[str, ...] = (Command(" && ".join(links)), Hint("if they are splits"))
    else:
        path = shlex.quote(str(root / similar[0]))
        fix = (f"data={path} data.val_share=0.1", Hint("to train on one of them"))
    return make_problem(root, f"{clause}: they look like splits, not classes", (*fix, *_CLASSES))


def _choose_pair(listing: Listing, similar: list[str]) -> tuple[str, ...]:
    """Return the folders for training and validation: by name, or the larger first."""
    if family := next(filter(is_train_and_val, find_split_families(similar).values()), None):
        names = {word: name for name, word in family.items()}
        return tuple(
            next(names[word] for word in words if word in names) for words in SYNONYMS.values()
        )
    counts = dict(zip(listing.classes, listing.counts.tolist(), strict=True))
    return tuple(sorted(similar, key=lambda name: -counts[name])) if len(similar) == 2 else ()
