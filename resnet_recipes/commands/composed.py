"""The recipe that a command's words ask for."""

from typing import TYPE_CHECKING

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments

if TYPE_CHECKING:
    from resnet_recipes.recipe.compose import Composed


def composed(arguments: Arguments, needs_data: bool = True) -> "Composed":
    """Compose the one recipe that the words name, with their changes. Raises RecipeError with every problem."""
    from resnet_recipes.recipe.library import Library

    library = Library(arguments.recipes)
    names = [word.removeprefix("recipe=") for word in arguments.words if word.startswith("recipe=")]
    changes = [word for word in arguments.words if not word.startswith("recipe=")]
    if len(names) != 1:
        known = library.names()
        fix = next(
            (f"recipe={word}" for word in changes if word in known),
            f"recipe=NAME, one of {', '.join(known)}",
        )
        raise RecipeError(
            [
                Problem(
                    "recipe",
                    " ".join(names) or None,
                    "a run has one recipe" if names else "is missing",
                    fix,
                )
            ]
        )
    library.chain(names[0])  # reports a wrong name or a broken file before seconds of imports

    from resnet_recipes.recipe.compose import compose

    return compose(names[0], changes, arguments.recipes, needs_data)
