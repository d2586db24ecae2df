"""Check `data.root`: whether it can be read, and which folder the user probably meant."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from urllib.parse import urlsplit

from resnet_recipes.base.errors import Command, Fix, Hint, Kind, NotReadyError, Problem, Value
from resnet_recipes.base.paths import is_fetched
from resnet_recipes.base.text import join_first

LAYOUT = (
    "the layout is PATH/train/CLASS/image.jpg and PATH/val/CLASS/image.jpg, or with "
    "data.val_share=0.1 PATH/CLASS/image.jpg"
)
SPLITS = ("train", "val")
CONVERT_HINT = Hint("resnet-recipes convert SRC DST")
WINDOWS_HINT = Hint("write / instead of \\; in WSL, C:\\ is /mnt/c/")

#: Names for the splits, including Hugging Face keywords. The first that exists is used.
SYNONYMS = {
    "train": ("train", "training"),
    "val": ("val", "validation", "valid", "dev", "test", "testing", "eval", "evaluation"),
}

_LETTER = r"[^\W\d_]"
#: A word for a split in a lower-case name, alone or as in "trainset" and "test_images".
_SPLIT_WORD = re.compile(
    rf"(?<!{_LETTER})({'|'.join(chain(*SYNONYMS.values()))})"
    rf"(?=(?:data)?(?:set|images?)?(?!{_LETTER}))"
)
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")  # the start of a word inside a name

#: Folders of archivers and file servers. Hidden names are also ignored.
DEBRIS = (".", "__MACOSX", "@eaDir", "lost+found")

#: Files with the paths and labels of images.
TABLES = (".csv", ".tsv", ".jsonl")

_ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".rar", ".7z")
_WEIGHTS_SUFFIXES = (".pt", ".pth", ".safetensors", ".ckpt")
_MAX_SEARCHED = 200  # folders searched for splits


def find_root_problem(path: str) -> Problem | None:
    """Return the problem with `path`, or None if it looks right.

    Its fix is the folder that the user probably meant, if one is found.
    """
    root = Path(path)
    try:
        names = set(os.listdir(root))
    except FileNotFoundError:
        return _explain_missing(root)
    except OSError as error:
        if not os.path.isfile(root):
            return explain_unreadable(error)
        return None if root.suffix.lower() in TABLES else _explain_file(root)
    betons = [split for split in SPLITS if f"{split}.beton" in names]
    folders = find_split_folders(root)
    split_names = {*chain(*SYNONYMS.values())}
    tables = [Path(name).stem.lower() for name in names if name.lower().endswith(TABLES)]
    is_split = bool(folders or split_names & {*tables})
    if {"images", "labels"} <= {*_list_folders(root / "train" if is_split else root)}:
        clause = "has bounding boxes, in labels/, but no class for each image"
        return make_problem(root, clause, Hint(f"for classification, {LAYOUT}"))
    if {*SYNONYMS["train"]} & {*folders.values(), *tables} or len(betons) == 2:
        return None
    if betons:
        clause = f"has only {betons[0]}.beton; a run needs train.beton and val.beton"
        return make_problem(root, clause, CONVERT_HINT)
    has_folders = bool(_list_folders(root))
    # the examples of FFCV also use the suffix .ffcv
    ffcv = sorted(name for name in names if name.lower().endswith((".beton", ".ffcv")))
    if ffcv and not has_folders:
        clause = f"has {ffcv[0]}, but a run needs train.beton and val.beton"
        return make_problem(root, clause, Hint("rename the files that FFCV wrote"))
    levels = ((root, "split"), (root.parent, "class"))
    for folder, noun in levels[: 1 if has_folders else 2]:
        if folder.name in find_split_folders(folder.parent) and _has_splits(folder.parent):
            clause = f"is one {noun}; use the folder containing train/ and val/"
            return make_problem(root, clause, Value(folder.parent))
    if meant := find_folder_with_splits(root):
        return make_problem(root, "has no train/ and val/, but a folder in it does", Value(meant))
    return None


def find_folder_with_splits(root: Path) -> Path | None:
    """Return the first folder below `root` with train/ and val/, up to three levels deep."""
    folders = islice(_iterate_folders_below(root), _MAX_SEARCHED)
    return next(filter(_has_splits, folders), None)


def find_split_families(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Group names that contain one split word: {rest of the name: {name: split word}}.

    {"set": {"training_set": "training", "test_set": "test"}}; the rest of "val" is "".
    """
    families: dict[str, dict[str, str]] = {}
    for name in names:
        spaced = _CAMEL_CASE.sub(" ", name).lower()
        if len(words := _SPLIT_WORD.findall(spaced)) == 1:
            rest = re.sub(r"[\W_]", "", _SPLIT_WORD.sub("", spaced))
            families.setdefault(rest, {})[name] = words[0]
    return families


def is_train_and_val(family: Mapping[str, str]) -> bool:
    """Return whether some names of a family are for training and some for validation."""
    return not any({*synonyms}.isdisjoint(family.values()) for synonyms in SYNONYMS.values())


def find_split_names(names: Iterable[str]) -> dict[str, str]:
    """Return the names that are splits, each with its synonym.

    They are synonyms, or differ only in a synonym, such as "seg_train" and "seg_test".
    """
    families = find_split_families(names)
    if exact := families.pop("", None):
        return exact
    both = [*filter(is_train_and_val, families.values())]
    return both[0] if len(both) == 1 else {}


def find_split_folders(folder: Path) -> dict[str, str]:
    """Return the folders in a folder that are splits, like `find_split_names`.

    Names that contain more than a synonym also need class folders, because "seg_train" alone could
    be a class.
    """
    words = find_split_names(_list_folders(folder))
    is_exact = "" in find_split_families(words)
    return words if is_exact or all(any(_list_folders(folder / name)) for name in words) else {}


def find_address_problems(address: str) -> Iterator[Problem]:
    """Yield why images cannot be fetched from a URL; its key is relative to `data`."""
    if not is_fetched(address):
        return
    try:
        parts = urlsplit(address)
        has_more = parts.query or parts.fragment or parts.username is not None
        _ = parts.port  # in me:a/b@host, the parser takes the text before the slash as the host
    except ValueError:
        has_more = True
    if has_more or not (parts.netloc and address.isprintable()) or " " in address:
        rule = "must be the address of a folder or a table, without password, query or spaces"
        yield Problem("root", address, rule, Value("https://host/folder"))
    elif parts.path.endswith(_ARCHIVE_SUFFIXES):
        clause = "is an archive, but images are fetched from a folder"
        yield Problem("root", address, clause, Hint("unpack it, and pass the folder"))


def explain_unreadable(error: OSError) -> Problem:
    """Return the problem for an unreadable folder below `data.root`, or a file in it."""
    folder = Path(error.filename)
    fix = Command.of("ls", "-ld", str(folder)) if isinstance(error, PermissionError) else ""
    return make_problem(folder, f"cannot be read: {error.strerror}", fix)


def _explain_missing(root: Path) -> Problem:
    there = next(parent for parent in root.parents if os.path.isdir(parent))
    wrong, *rest = root.relative_to(there).parts
    names = {name.lower(): name for name in _list_folders(there)}
    for name in get_close_matches(wrong.lower(), names, n=3, cutoff=0.7):
        if os.path.exists(meant := there.joinpath(names[name], *rest)):
            return Problem("data.root", str(root), "", Value(meant), kind=Kind.ABSENT)
    is_here = there.absolute() == Path.cwd()
    subject = "the current folder" if is_here else there
    listed = join_first(sorted(names.values()))
    fix: Fix = Hint(f"{subject} contains {listed}") if listed else ()
    if not is_here and (rest or there == Path(there.anchor)):  # do not list a distant parent folder
        fix = Hint(f"there is no folder {there / wrong}") if rest else ()
    if root.match("data/demo"):
        fix = Hint("`resnet-train demo` generates these images")
    elif "\\" in wrong or wrong.endswith(":"):
        fix = WINDOWS_HINT
    return Problem("data.root", str(root), "", fix, kind=Kind.ABSENT)


def _explain_file(root: Path) -> Problem:
    if root.suffix != ".beton":
        hints: tuple[str, ...] = (LAYOUT, "a table has the columns path and label")
        if root.name.lower().endswith(_ARCHIVE_SUFFIXES):
            hints = ("unpack it, and pass the folder", LAYOUT)
        if root.suffix.lower() in _WEIGHTS_SUFFIXES:
            hints = (f"weights are set with model.weights={shlex.quote(str(root))}",)
        fix: Fix = tuple(map(Hint, hints))
        if folder := next(filter(_has_splits, root.parents[:3]), None):  # ROOT/train/ants/1.jpg
            fix = Value(folder)
        return make_problem(root, f"is neither a folder nor a table ({', '.join(TABLES)})", fix)
    fix = Value(root.parent) if _has_splits(root.parent) else CONVERT_HINT
    return make_problem(
        root, "is a file; a run reads train.beton and val.beton from one folder", fix
    )


def _has_splits(folder: Path) -> bool:
    """Return whether a folder has both splits, with class folders or tables."""
    if all(os.path.exists(folder / f"{split}.beton") for split in SPLITS):
        return True
    words = find_split_folders(folder)
    if not is_train_and_val(words):
        return False
    return any(
        any(_list_folders(folder / name))
        for name, word in words.items()
        if word in SYNONYMS["train"]
    ) or any(name.lower().endswith(TABLES) for name in os.listdir(folder))


def _iterate_folders_below(root: Path) -> Iterator[Path]:
    """Yield the folders below `root`, three levels deep, upper levels first."""
    level = [root]
    for _ in range(3):
        level = [
            folder / name
            for folder in level[:_MAX_SEARCHED]
            for name in islice(_list_folders(folder), _MAX_SEARCHED)
        ]
        yield from level


def list_classes(folder: Path) -> list[str]:
    """Return the class folders of a folder, sorted.

    Raises OSError if the folder cannot be listed.
    """
    with os.scandir(folder) as entries:
        return sorted(
            entry.name for entry in entries if not entry.name.startswith(DEBRIS) and entry.is_dir()
        )


def _list_folders(folder: Path) -> list[str]:
    """Return the class folders of a folder; empty if it cannot be listed."""
    try:
        return list_classes(folder)
    except OSError:
        return []


def make_problem(root: object, clause: str, fix: Fix) -> Problem:
    """Return a problem with `data.root`, or a part of it."""
    return Problem("data.root", str(root), clause, fix)


def make_error(root: object, clause: str, fix: Fix = ()) -> NotReadyError:
    """Return an error about the images at `data.root`, or a part of them."""
    return NotReadyError([make_problem(root, clause, fix)])
