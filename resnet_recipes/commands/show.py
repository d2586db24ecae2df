"""`resnet-recipes show NAME` and `resnet-train --describe NAME`: one recipe, with the source of every value."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from resnet_recipes.commands.arguments import split
from resnet_recipes.composing.library import Library
from resnet_recipes.errors import Problem, RecipeError


def run(argv: Sequence[str]) -> int:
    """Print one recipe's files."""
    arguments = split(argv, {"--recipes": "DIR"}, "resnet-train recipe=mild")
    if len(arguments.words) != 1:
        raise RecipeError([Problem("show", None, "needs the name of one recipe", "resnet-recipes show mild")])
    folder = arguments.flags.get("--recipes")
    describe(arguments.words[0].removeprefix("recipe="), Path(folder) if folder else None)
    return 0


def describe(name: str, folder: Path | None) -> None:
    """Print where a recipe is from and its file as it was written, after those that it inherits from."""
    for entry, document in Library(folder).chain(name):
        hides = f", instead of the packaged {entry.name}" if entry.shadows else ""
        print(f"# {entry.name}: {entry.path} ({entry.origin}{hides})")
        print(f"# sha256 {hashlib.sha256(document.raw).hexdigest()}")
        print()
        print(document.raw.decode("utf-8-sig").rstrip())
        print()
