"""Paths: as people type them, and where a program may keep things."""

import os
from pathlib import Path

from resnet_recipes.base.errors import Problem, RecipeError


def typed_path(key: str, text: str) -> Path:
    """Return the path that was typed for `key`, with ~ expanded.

    Raises RecipeError if there is no such user.
    """
    path = os.path.expanduser(text)  # pathlib's raises RuntimeError
    if path.startswith("~"):
        user = path.partition("/")[0]
        rule = f"{user} is not a user of this machine"
        raise RecipeError([Problem(key, text, rule, f"./{text} for a file with this name")])
    return Path(path)


def nearest_existing(path: Path) -> Path:
    """Return a path, or the nearest folder above it that exists."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if place.exists())


def cache_folder() -> Path:
    """Return this program's folder in the user's cache (XDG_CACHE_HOME); it may not exist."""
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "resnet-recipes"
    )
