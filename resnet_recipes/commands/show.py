"""`resnet-recipes show NAME` and `resnet-train --describe NAME`: one recipe, with the source of every value."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from resnet_recipes.commands.arguments import RECIPES, Usage, split
from resnet_recipes.composing.library import Library

USAGE = Usage("resnet-recipes show NAME", "print a recipe's file, with the source of every value",
              "resnet-recipes show mild", RECIPES, words=(1, 1), takes="the name of one recipe")


def run(argv: Sequence[str]) -> int:
    """Print one recipe's files."""
    arguments = split(argv, USAGE)
    describe(arguments.words[0].removeprefix("recipe="), arguments.recipes)
    return 0


def describe(name: str, folder: Path | None) -> None:
    """Print where a recipe comes from and its file as it was written, after those that it inherits from."""
    for entry, document in Library(folder).chain(name):
        hides = f", hides the packaged {entry.name}" if entry.shadows else ""
        print(f"# {entry.name}: {entry.path} ({entry.origin}{hides})")
        print(f"# sha256 {hashlib.sha256(document.raw).hexdigest()}")
        print()
        print(document.raw.decode("utf-8-sig").rstrip())
        print()
