"""`resnet-recipes cp NAME FILE`: start a recipe of one's own from another."""

import re
from collections.abc import Sequence
from pathlib import Path

from resnet_recipes.commands.arguments import split
from resnet_recipes.composing.library import NAME, Library, parents
from resnet_recipes.composing.strict_yaml import shown
from resnet_recipes.errors import Problem, RecipeError

CHILD = """\
# Everything that is not written here comes from {parent}. What that is: resnet-recipes show {parent}

defaults: [{parent}]
name: {name}
about: {parent} with changes
"""


def run(argv: Sequence[str]) -> int:
    """Write a recipe file that inherits from another, or with --full a complete copy."""
    arguments = split(argv, {"--full": "", "--recipes": "DIR"}, "resnet-train recipe=mild")
    if len(arguments.words) != 2:
        raise RecipeError([Problem("cp", None, "needs a recipe and a file", "resnet-recipes cp hot recipes/mine.yaml")])
    source, path = arguments.words[0].removeprefix("recipe="), Path(arguments.words[1])
    folder = arguments.flags.get("--recipes")
    entry, document = Library(Path(folder) if folder else None).chain(source)[-1]
    if problem := _unusable(path):
        raise RecipeError([problem])
    if "--full" not in arguments:
        if entry.origin == "file":
            raise RecipeError([Problem("cp", source, "recipes inherit by name only", "--full copies the file")])
        text = CHILD.format(parent=entry.name, name=path.stem)
    elif parents(document):
        raise RecipeError([Problem("--full", source, f"inherits itself, from {', '.join(parents(document))}", "copy that one")])
    else:
        text = re.sub(r"(?m)^name:.*$", f"name: {path.stem}", document.raw.decode("utf-8-sig"), count=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    by_name = path.parent.resolve() == Path("recipes").resolve()
    print(f"{shown(path)} is written. Try:  resnet-train recipe={path.stem if by_name else shown(path)} --dry-run")
    return 0


def _unusable(path: Path) -> Problem | None:
    if path.suffix != ".yaml" or not NAME.fullmatch(path.stem):
        return Problem("cp", str(path), "must end in .yaml and be named with lower-case letters, digits and '_'", "recipes/mine.yaml")
    if path.exists():
        return Problem("cp", str(path), "is there already, and is left as it is", "choose another name")
    return None
