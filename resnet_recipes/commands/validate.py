"""`resnet-recipes validate [FILE ...]`: check recipe files without data or a GPU."""

import sys
from collections.abc import Sequence
from pathlib import Path

from resnet_recipes.commands.arguments import split
from resnet_recipes.composing.library import Library
from resnet_recipes.composing.strict_yaml import shown
from resnet_recipes.errors import RecipeError
from resnet_recipes.report.text import printable


def run(argv: Sequence[str]) -> int:
    """Compose each file and print what is wrong with it; return 2 if anything is."""
    from resnet_recipes.composing.compose import compose

    arguments = split(argv, {"--recipes": "DIR"}, "resnet-train recipe=mild")
    folder = Path(arguments.flags["--recipes"]) if "--recipes" in arguments else None
    names = arguments.words or [str(path) for path in Library(folder).user.values()]
    wrong = 0
    for name in names:
        try:
            compose(name, folder=folder, needs_data=False)
            print(f"{shown(Path(name))}: ok")
        except RecipeError as error:
            wrong += 1
            print("\n".join(printable(line) for problem in error.problems for line in str(problem).splitlines()), file=sys.stderr)
    if not names:
        print("no recipe to check: ./recipes has none")
    return RecipeError.exit_code if wrong else 0
