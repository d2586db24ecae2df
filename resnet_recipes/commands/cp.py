"""`resnet-recipes cp NAME FILE`: start your own recipe from another."""

import re
from pathlib import Path

from resnet_recipes.base import names
from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.recipe.library import Library, parents
from resnet_recipes.recipe.strict_yaml import shown

CHILD = """\
# Everything not set here comes from {parent}: resnet-recipes show {parent}

defaults: [{parent}]
name: {name}
about: {parent} with changes
"""


def run(arguments: Arguments) -> int:
    """Write a recipe file that inherits from another, or with --full a complete copy."""
    source, path = arguments.words[0].removeprefix("recipe="), Path(arguments.words[1])
    entry, document = Library(arguments.recipes).chain(source)[-1]
    if problem := _unusable(path):
        raise RecipeError([problem])
    if "--full" not in arguments:
        if entry.origin == "file":
            raise RecipeError(
                [
                    Problem(
                        "cp",
                        source,
                        "is a file; recipes inherit from names only",
                        "--full copies the file",
                    )
                ]
            )
        text = CHILD.format(parent=entry.name, name=path.stem)
    elif above := [name for _, name in parents(document)]:
        raise RecipeError(
            [
                Problem(
                    "--full",
                    source,
                    f"itself inherits from {', '.join(above)}",
                    "copy that one",
                )
            ]
        )
    else:
        text = re.sub(
            r"(?m)^name:.*$", f"name: {path.stem}", document.raw.decode("utf-8-sig"), count=1
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecipeError(
            [Problem("cp", str(path), f"cannot be written: {error.strerror}")]
        ) from None
    by_name = path.parent.resolve() == Path("recipes").resolve()
    print(
        f"{shown(path)} was written. Try:  resnet-train "
        f"recipe={path.stem if by_name else shown(path)} --dry-run"
    )
    return 0


def _unusable(path: Path) -> Problem | None:
    if path.suffix != ".yaml" or not names.RECIPE.fullmatch(path.stem):
        return Problem(
            "cp",
            str(path),
            "must end in .yaml and be named with lower-case letters, digits and '_'",
            "recipes/mine.yaml",
        )
    if path.exists():
        return Problem("cp", str(path), "already exists", "choose another name")
    return None
