"""Paths as people type them."""

import os
from pathlib import Path

from resnet_recipes.errors import Problem, RecipeError


def typed_path(key: str, text: str) -> Path:
    """Return the path that was typed for `key`, with ~ expanded. Raises RecipeError if there is no such user."""
    path = os.path.expanduser(text)         # pathlib's raises RuntimeError
    if path.startswith("~"):
        user = path.partition("/")[0]
        rule = f"{user} is not a user of this machine"
        raise RecipeError([Problem(key, text, rule, f"./{text} for a file with this name")])
    return Path(path)
