"""`resnet-recipes validate [FILE ...]`: check recipe files without data or a GPU."""

import os
import shlex
import sys
from pathlib import Path

from resnet_recipes.base.errors import Kind, Problem, RecipeError
from resnet_recipes.base.text import escape_controls
from resnet_recipes.commands.arguments import RECIPES, Arguments, Usage
from resnet_recipes.recipe.library import Library
from resnet_recipes.recipe.strict_yaml import shorten_path

USAGE = Usage(
    "resnet-recipes validate [FILE ...]",
    "check recipe files, without data or a GPU",
    "resnet-recipes validate recipes/mine.yaml",
    RECIPES,
    "Without FILE, all files in ./recipes are checked.",
)


def run(arguments: Arguments) -> int:
    """Compose each file and print its problems; return the exit code of the worst."""
    folder = arguments.recipes
    library = Library(folder)
    if folder_word := next(filter(os.path.isdir, arguments.words), ""):
        command = shlex.join(["resnet-recipes", "validate", "--recipes", folder_word])
        raise RecipeError.of(folder_word, None, "is a folder, not a recipe", command)
    names = arguments.words or [str(path) for path in library.user.values()]
    code = 0
    for name in names:
        try:
            library.read_chain(name)  # reports an invalid file before imports that take seconds
            from resnet_recipes.recipe.compose import compose

            compose(name, folder=library, needs_data=False)
            print(f"{shorten_path(Path(name))}: ok")
        except RecipeError as error:
            code = max(code, error.exit_code)
            for line in "\n".join(map(_format, error.problems)).splitlines():
                print(escape_controls(line), file=sys.stderr)
    if not names:
        print(f"no recipe to check in {folder or './recipes'}")
    return code


def _format(problem: Problem) -> str:
    """Return a problem as text; a missing file is named as it was typed."""
    problem = problem._replace(key="FILE") if problem.kind is Kind.ABSENT else problem
    return "\n      ".join([f"error: {problem.lines()[0]}", *problem.lines()[1:]])
