"""`resnet-recipes cp NAME FILE`: start your own recipe from another."""

import re
from pathlib import Path

from resnet_recipes.base import names
from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import Command, Hint, RecipeError, format_advice
from resnet_recipes.base.paths import find_free_path, parse_new_path, parse_path
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.printing import say
from resnet_recipes.command_line.usage import RECIPES, Usage
from resnet_recipes.jobs.lookup import find_run_path
from resnet_recipes.recipe.library import USER_FOLDER, Entry, Library
from resnet_recipes.recipe.strict_yaml import shorten_path
from resnet_recipes.run_folder import CONFIG
from resnet_recipes.run_folder.runs import read_run

USAGE = Usage(
    "resnet-recipes cp NAME FILE",
    "start your own recipe from another one",
    "resnet-recipes cp hot recipes/mine.yaml",
    RECIPES,
    "The new recipe inherits all settings of NAME. `resnet-recipes show NAME` prints them.",
    positional=(2, 2),
    positional_text="a recipe and a file",
)

CHILD = """\
# Everything not set here comes from {parent}: resnet-recipes show {parent}

defaults: [{parent}]
name: {name}
about: {parent} with changes
"""


def check(arguments: Arguments) -> tuple[Entry, Path]:
    """Return the recipe to inherit from, and the path of the new one.

    Raises RecipeError if the recipe cannot be inherited, or if FILE cannot be its name.
    """
    source, file = arguments.positional
    errors = ErrorCollector()
    recipes = Library(arguments.recipes).list_names()
    if file in recipes and source not in recipes and not Path(source).exists():
        path = find_free_path(Path("recipes", Path(source).name).with_suffix(".yaml"))
        swapped = Command.of("resnet-recipes", "cp", file, str(path))
        raise RecipeError.of("COMMAND", f"cp {source} {file}", "needs the recipe first", swapped)
    with errors:
        name = source.removeprefix("recipe=")
        run = find_run_path("NAME", name.removesuffix(f"/{CONFIG}"))
        record = read_run(run) if run and source not in recipes else None
        if record and record.recipe in recipes:
            fix = Command.of("resnet-recipes", "cp", record.recipe, file)
            duration = f"epochs={record.epochs:g}" if record.epochs else ""
            settings = " ".join(filter(None, (duration, *record.shown_changes)))
            hint = Hint(f"the run used {settings}" if settings else "")
            raise RecipeError.of("NAME", source, "is a run, not a recipe", (fix, hint))
        parent = Library(arguments.recipes).read_valid_chain(name)[-1].entry
        if parent.origin == "file":
            clause = "is a file outside recipes/, and recipes inherit from names only"
            hint = Hint(f"move it to recipes/{parent.path.name}")
            raise RecipeError.of("NAME", source, clause, hint)
    with errors:
        path = parse_path("FILE", file)
        if path.suffix != ".yaml" or not names.RECIPE.fullmatch(path.stem):
            clause = "must end in .yaml and be named with lower-case letters, digits and '_'"
            name = re.sub(r"[^a-z0-9_]", "_", path.stem.lower()).lstrip("_0123456789")[:64]
            free = find_free_path(Path("recipes", f"{name or 'mine'}.yaml"))
            raise RecipeError.of("FILE", str(path), clause, str(free))
        parse_new_path("FILE", file)
    errors.raise_if_any()
    return parent, path


def run(_: Arguments, parent: Entry, path: Path) -> int:
    """Write a recipe file that inherits from another file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CHILD.format(parent=parent.name, name=path.stem), encoding="utf-8")
    except OSError as error:
        clause = f"cannot be written: {error.strerror}: {path.parent}"
        raise RecipeError.of("FILE", str(path), clause, f"recipes/{path.name}") from None
    by_name = path.parent.resolve() == USER_FOLDER.resolve()
    name = path.stem if by_name else shorten_path(path)
    print(f"saved {shorten_path(path)}")
    if by_name and name in Library().packaged:
        say(f"note: it hides the packaged recipe {name}")
    print(format_advice(Hint(f"resnet-train {name} data=PATH --dry-run")))
    return 0
