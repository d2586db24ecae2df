"""`resnet-recipes show NAME`: one recipe, with the sources of its values."""

import hashlib
import re
import shutil
import sys

from resnet_recipes.base.errors import Command, RecipeError
from resnet_recipes.base.text import escape_controls, wrap_text
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.usage import RECIPES, Usage
from resnet_recipes.commands.methods import find_methods
from resnet_recipes.recipe.library import Library, Link

USAGE = Usage(
    "resnet-recipes show NAME",
    "print a recipe file with the sources of its values",
    "resnet-recipes show mild",
    RECIPES,
    positional=(1, 1),
    positional_text="the name of one recipe",
)


def check(arguments: Arguments) -> tuple[list[Link]]:
    """Return the recipe and its parents. Raises RecipeError if one of them cannot be read."""
    name = arguments.flags.get("--describe") or arguments.positional[0].removeprefix("recipe=")
    library = Library(arguments.recipes)
    if name not in library.list_names() and name in find_methods():
        fix = Command.of("resnet-recipes", "methods", name)
        raise RecipeError.of("recipe", name, "is a method or an optimizer, not a recipe", fix)
    return (library.read_valid_chain(name),)


def run(_: Arguments, chain: list[Link]) -> int:
    """Print a recipe's file with its path, after the files that it inherits from.

    On a terminal, long lines are folded.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for link in chain:
        entry = link.entry
        hides = f", hides the packaged {entry.name}" if entry.shadows else ""
        print(f"# {entry.name}: {escape_controls(entry.path)} ({entry.origin}{hides})")
        print(f"# sha256 {hashlib.sha256(link.document.raw).hexdigest()}")
        print()
        for line in link.document.raw.decode("utf-8-sig").rstrip().splitlines():
            text = escape_controls(line.expandtabs())
            print(fold(text, width) if width else text)
        print()
    return 0


def fold(line: str, width: int) -> str:
    """Fold a line of YAML into equivalent lines of at most `width` columns.

    Comments continue at the same column.
    """
    first = re.findall(r"#\s*|.*?  # | *", line)[0]
    if len(line) <= width or len(first) > width - 24:
        return line
    below = first if line.startswith("#") else f"{first}   "
    if first.endswith("  # "):
        below = f"{'':<{len(first) - 2}}# "
    return "\n".join(wrap_text(line[len(first) :], width, first, below))
