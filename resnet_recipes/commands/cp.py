"""`resnet-recipes cp NAME FILE`: start your own recipe from another."""

import re
from pathlib import Path

from resnet_recipes.base import names
from resnet_recipes.base.errors import Hint, Problem, RecipeError
from resnet_recipes.base.paths import new_path, typed_path
from resnet_recipes.commands.arguments import RECIPES, Arguments, Usage
from resnet_recipes.recipe.library import USER_FOLDER, Entry, Library, read_defaults
from resnet_recipes.recipe.strict_yaml import Document, shorten_path

USAGE = Usage(
    "resnet-recipes cp NAME FILE",
    "start your own recipe from another one",
    "resnet-recipes cp hot recipes/mine.yaml",
    {"--full": "write a complete copy (default: inherit from NAME)"} | RECIPES,
    words=(2, 2),
    takes="a recipe and a file",
)

CHILD = """\
# Everything not set here comes from {parent}: resnet-recipes show {parent}

defaults: [{parent}]
name: {name}
about: {parent} with changes
"""


def run(arguments: Arguments) -> int:
    """Write a recipe file that inherits from another, or with --full a complete copy."""
    source = arguments.words[0].removeprefix("recipe=")
    path = typed_path("FILE", arguments.words[1])
    entry, document = Library(arguments.recipes).read_chain(source)[-1]
    is_full = "--full" in arguments
    RecipeError.refuse(
        [_find_path_problem(path) or _find_copy_problem(source, entry, document, is_full)]
    )
    new_path("FILE", arguments.words[1])
    text = CHILD.format(parent=entry.name, name=path.stem)
    if is_full:
        whole = document.raw.decode("utf-8-sig")
        text = re.sub(r"(?m)^name:.*$", f"name: {path.stem}", whole, count=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        rule = f"cannot be written: {error.strerror}"
        raise RecipeError.of("FILE", str(path), rule) from None
    by_name = path.parent.resolve() == USER_FOLDER.resolve()
    name = path.stem if by_name else shorten_path(path)
    print(f"{shorten_path(path)} was written. Try:  resnet-train {name} data=PATH --dry-run")
    return 0


def _find_path_problem(path: Path) -> Problem | None:
    """Return the problem of writing a recipe to `path`; None if there is none."""
    if path.suffix != ".yaml" or not names.RECIPE.fullmatch(path.stem):
        rule = "must end in .yaml and be named with lower-case letters, digits and '_'"
        name = re.sub(r"[^a-z0-9_]", "_", path.stem.lower()).lstrip("_0123456789")[:64]
        return Problem("FILE", str(path), rule, f"recipes/{name or 'mine'}.yaml")
    return None


def _find_copy_problem(
    source: str, entry: Entry, document: Document, is_full: bool
) -> Problem | None:
    """Return the problem of inheriting from a recipe, or of copying it in full."""
    if not is_full and entry.origin == "file":
        rule = "is a file; recipes inherit from names only"
        return Problem("cp", source, rule, "--full")
    if is_full and (above := [name for _, name in read_defaults(document)]):
        rule = f"itself inherits from {', '.join(above)}"
        return Problem("--full", source, rule, Hint("copy that one"))
    return None
