"""`resnet-recipes validate [FILE ...]`: check recipe files without data or a GPU."""

import os
import shlex
from pathlib import Path

from resnet_recipes.base.errors import ExitCode, Hint, Kind, Problem, RecipeError
from resnet_recipes.base.suggestions import find_closest
from resnet_recipes.commands.arguments import RECIPES, Arguments, Usage
from resnet_recipes.recipe.library import Library
from resnet_recipes.recipe.strict_yaml import Document, shorten_path

USAGE = Usage(
    "resnet-recipes validate [FILE ...]",
    "check recipe files, without data or a GPU",
    "resnet-recipes validate recipes/mine.yaml",
    RECIPES,
    "Without FILE, all files in ./recipes are checked.",
)


def run(arguments: Arguments) -> int:
    """Compose each file. Raises the problems of all files, with the exit code of the worst."""
    folder = arguments.recipes
    library = Library(folder)
    if typed_folder := next(filter(os.path.isdir, arguments.positional), ""):
        command = shlex.join(["resnet-recipes", "validate", "--recipes", typed_folder])
        raise RecipeError.of(typed_folder, None, "is a folder, not a recipe", command)
    names = arguments.positional or [str(path) for path in library.user.values()]
    errors = list[RecipeError]()
    for name in names:
        try:
            name = name.removeprefix("recipe=")  # as other commands write it
            # reports an invalid file before imports that take seconds
            document = library.read_chain(name)[-1].document
            from resnet_recipes.planning.planner import find_conflicts
            from resnet_recipes.recipe.compose import compose

            conflicts = find_conflicts(*compose(name, folder=library, needs_data=False))
            RecipeError.raise_if_any(_locate(conflict, document) for conflict in conflicts)
            print(f"{shorten_path(Path(name))}: ok")
        except RecipeError as error:
            errors.append(error)
    if not names:
        print(f"no recipe to check in {folder or './recipes'}")
    if errors:
        worst = max(errors, key=lambda error: error.exit_code)
        problems = [problem for error in errors for problem in error.problems]
        raise type(worst)(_name_file(problem, library) for problem in problems)
    return ExitCode.DONE


def _locate(problem: Problem, document: Document) -> Problem:
    """Return a problem of a plan with the recipe's file, and lines of this file as its fix."""

    def to_yaml(advice: str) -> str:
        key, _, value = advice.strip("'~").partition("=")
        section, _, name = key.rpartition(".")
        if isinstance(advice, Hint) or " " in advice or not section:
            return advice
        line = f"{name}: {value or 'null'}"
        return line if section in document.tree else f"{section}: {{{line}}}"

    is_in_file = problem.key in document.lines
    where = document.locate(problem.key) if is_in_file else shorten_path(document.path)
    return problem._replace(where=where, fix=tuple(map(to_yaml, problem.advice)))


def _name_file(problem: Problem, library: Library) -> Problem:
    """Return a problem whose missing file is named as it was typed, with a similar file."""
    if problem.kind is not Kind.ABSENT:
        return problem
    near = find_closest(Path(str(problem.value)).stem, library.user)
    fix: str = Hint("`resnet-recipes cp NAME FILE` writes a recipe file")
    if near:
        fix = shlex.join(["resnet-recipes", "validate", shorten_path(library.user[near])])
    return problem._replace(key="FILE", fix=fix)
