"""Paths that users type, and the folder for this program's cache."""

import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from resnet_recipes.base.errors import (
    Command,
    Fix,
    Hint,
    Kind,
    NotReadyError,
    Problem,
    RecipeError,
    Statement,
)
from resnet_recipes.base.text import format_bytes

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")

FETCHED_SCHEMES = ("s3", "gs", "https", "http")

EMPTY_CLAUSE = "is empty (is a shell variable unset?)"

#: File extensions, which are rejected for folders.
_FILE_EXTENSIONS = frozenset(
    (".beton", ".csv", ".html", ".onnx", ".png", ".pt", ".pt2", ".pth", ".safetensors", ".zip")
)

_COPY_COMMANDS = {
    "s3": "aws s3 sync {} local",
    "gs": "gcloud storage rsync -r {} local",
    "hf": "hf download {} --repo-type dataset --local-dir local",
    "https": "curl -L {} --create-dirs --output-dir local -O",
    "http": "curl -L {} --create-dirs --output-dir local -O",
}


def make_missing_data_problem() -> Problem:
    """Return the problem that data.root is not set."""
    clause = "pass a folder of images, or a table of paths and labels"
    hints = (
        "data=PATH for PATH/train/CLASS/image.jpg and PATH/val/CLASS/image.jpg",
        "data=PATH data.val_share=0.1 for PATH/CLASS/image.jpg",
        "data=TABLE.csv data.val_share=0.1 for a table with the columns path and label",
    )
    return Problem("data.root", None, clause, tuple(map(Hint, hints)), kind=Kind.MISSING)


def parse_path(key: str, text: str) -> Path:
    """Return the path that the user gave for `key`, with ~ expanded.

    Raises RecipeError if the path is empty, names an unknown user or is a URL.
    """
    if not text.strip():
        raise RecipeError.of(key, text, EMPTY_CLAUSE)
    if key == "data.root":
        text = re.sub("^hf:(?!//)", "hf://", text)  # the form used for networks
    if address := _ADDRESS.match(text):
        clause = "is an address, but only local files and folders can be read here"
        if key == "data.root":
            prefixes = ", ".join(f"{scheme}://" for scheme in FETCHED_SCHEMES)
            clause = f"must start with {prefixes}"
        scheme = address[1].lower()
        rest = text[address.end() :]
        fix: Fix = Hint("copy the images to a local folder, and pass that")
        if scheme == "file":
            fix = f"{'data=' if key == 'data.root' else ''}{shlex.quote(rest)}"
        elif copy := _COPY_COMMANDS.get(scheme):
            target = rest.removeprefix("datasets/") if scheme == "hf" else text
            command = Command(copy.format(shlex.quote(target)))
            fix = (command, Hint("then use local instead of the address"))
        raise RecipeError.of(key, text, clause, fix)
    path = os.path.expanduser(text)  # Path.expanduser raises RuntimeError
    if path.startswith("~"):
        user = path.partition("/")[0]
        clause = Statement(f"{user} is not a user of this machine")
        raise RecipeError.of(key, text, clause, f"./{text}")
    return Path(path)


def parse_new_path(key: str, text: str, is_folder: bool = False) -> Path:
    """Return the path that the user gave for a new file or folder.

    Raises RecipeError if it exists, if a folder has a file extension, or like `parse_path`,
    NotReadyError if a folder cannot be written to.
    """
    path = free = parse_path(key, text)
    clause = "already exists, and nothing is overwritten"
    if is_folder and path.suffix.lower() in _FILE_EXTENSIONS:
        clause = "looks like a file, but the output is a folder"
        free = path.with_suffix("")
    elif not os.path.lexists(path):
        NotReadyError.raise_if_any([find_folder_problem(key, path)] if is_folder else [])
        return path
    flag = f"{key} " if key.startswith("-") else ""
    raise RecipeError.of(key, text, clause, f"{flag}{shlex.quote(str(find_free_path(free)))}")


def find_free_path(path: Path) -> Path:
    """Return `path` if it does not exist, or else with another number at the end of its name.

    A number at the end is replaced: run3 becomes run2, if that is free.
    """
    stem = path.stem.rstrip("0123456789")
    number = 2
    while os.path.lexists(path):
        path = path.parent / f"{stem}{number}{path.suffix}"
        number += 1
    return path


def is_fetched(text: str) -> bool:
    """Return whether `text` is a bucket or web URL that images are fetched from."""
    address = _ADDRESS.match(text)
    return address is not None and address[1] in FETCHED_SCHEMES


def find_existing_parent(path: Path) -> Path:
    """Return a path or its nearest existing parent; raise OSError for impossible paths."""
    path = path.absolute()
    while True:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # in Python 3.14 Path.exists hides that a path is impossible
            return path
        path = path.parent


def find_similar_path(path: Path, suffixes: Sequence[str] = ()) -> str:
    """Return the path with the most similar name in the folder of a path, or "".

    It has the same extension, or the same name with one of `suffixes`.
    """
    with suppress(OSError):
        others = {
            other.stem: other
            for other in path.parent.iterdir()
            if other.suffix == path.suffix
            or (other.stem == path.stem and other.suffix.lower() in suffixes)
        }
        similar = get_close_matches(path.stem, others, n=1, cutoff=0.7)
        return "".join(str(others[stem]) for stem in similar)
    return ""


def find_folder_problem(key: str, folder: Path, needed: int = 1, need: str = "") -> Problem | None:
    """Return a problem if files of `needed` bytes cannot be written to a folder, or None.

    The folder may not exist yet. `need` is a clause for the message: "the run needs 2 GB".
    """
    fix = Hint(f"set {key} to another folder")
    try:
        parent = find_existing_parent(folder)
        disk = os.statvfs(parent)
    except OSError as error:
        why = error.strerror
    else:
        free = disk.f_bavail * disk.f_frsize
        is_read_only = disk.f_flag & os.ST_RDONLY
        if not parent.is_dir():
            why = f"{parent} is a file"
        elif not os.access(parent, os.W_OK | os.X_OK):
            why = "Read-only file system" if is_read_only else "Permission denied"
        elif not disk.f_blocks:
            why = f"{parent} is not on a disk"
        elif free < needed:
            return Problem(key, str(folder), f"has {format_bytes(free)} free, and {need}", fix)
        else:
            return None
    return Problem(key, str(folder), f"cannot be written to: {why}", fix)


def get_cache_folder() -> Path:
    """Return this program's folder in the user's cache (XDG_CACHE_HOME); it may not exist."""
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "resnet-recipes"
    )
