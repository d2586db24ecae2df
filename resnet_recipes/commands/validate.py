"""`resnet-recipes validate [FILE ...]`: check recipe files without data or a GPU."""

import os
from pathlib import Path

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import Command, ExitCode, Hint, Kind, Problem, RecipeError
from resnet_recipes.base.suggestions import find_closest
from resnet_recipes.command_line.arguments import Arguments
from resnet_recipes.command_line.usage import RECIPES, Usage
from resnet_recipes.recipe.library import USER_FOLDER, Library
from resnet_recipes.recipe.strict_yaml import shorten_path

USAGE = Usage(
    "resnet-recipes validate [FILE ...]",
    "check recipe files without data or a GPU",
    "resnet-recipes validate recipes/mine.yaml",
    RECIPES,
    "Without FILE, it checks all files in the recipe folder.",
)


def check(arguments: Arguments) -> None:
    """Compose each file and print the valid ones. Raises the problems of all files."""
    if folder := next(filter(os.path.isdir, arguments.positional), ""):
        command = Command.of("resnet-recipes", "validate", "--recipes", folder)
        raise RecipeError.of(folder, None, "is a folder, not a recipe", command)

    from resnet_recipes.recipe.compose import add_location, compose

    library = Library(arguments.recipes)
    others = (arguments.recipes or USER_FOLDER).glob("*.yml")  # reported as misnamed
    names = arguments.positional or [*map(str, (*library.user.values(), *others))]
    errors = ErrorCollector()
    for name in names:
        with errors:
            name = name.removeprefix("recipe=")  # as other commands write it
            composed = compose(name, folder=library, needs_data=False)
            from resnet_recipes.planning.planner import find_dataset_problems

            conflicts = find_dataset_problems(composed.recipe, composed.origin)
            document = library.read_chain(name)[-1].document
            RecipeError.raise_if_any(add_location(conflict, document) for conflict in conflicts)
            print(f"{shorten_path(Path(name))}: ok")
    if not names:
        print(f"no recipe to check in {arguments.recipes or './recipes'}")
    try:
        errors.raise_if_any()
    except RecipeError as error:
        problems = sorted(error.problems, key=_find_place)
        raise type(error)(_name_file(problem, library) for problem in problems) from None


def run(_: Arguments) -> int:
    """Return 0: all files are valid."""
    return ExitCode.DONE


def _find_place(problem: Problem) -> tuple[str, int]:
    """Return the file and line of a problem, to sort by; 0 without a line."""
    place = (problem.where or problem.key).partition(": ")[0]
    file, _, line = place.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (place, 0)


def _name_file(problem: Problem, library: Library) -> Problem:
    """Return a problem whose missing file is named as it was typed, with a similar file."""
    if problem.kind is not Kind.ABSENT:
        return problem
    near = find_closest(Path(str(problem.value)).stem, library.user)
    fix: str = Hint("`resnet-recipes cp NAME FILE` writes a recipe file")
    if near:
        fix = Command.of("resnet-recipes", "validate", shorten_path(library.user[near]))
    return problem._replace(key="FILE", fix=fix)
