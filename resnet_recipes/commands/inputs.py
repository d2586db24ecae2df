"""Check the images and the weights of a recipe that has other problems."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.base.paths import is_fetched
from resnet_recipes.commands.arguments import DATA_KEYS, select_arguments

#: Folder of the demo images, which every installation can generate.
DEMO = Path("data/demo")


def find_input_problems(
    name: str, changes: Sequence[str], recipes: Path | None
) -> tuple[Problem, ...]:
    """Return the problems of the images and the weights of a recipe, without counting images.

    Other checks report wrong settings of images and weights.
    """
    images = select_arguments(changes, *DATA_KEYS, "data.backend")
    model = [change for change in changes if change.startswith("model.")]
    return (
        *_find_image_problems(name, tuple(images), recipes),
        *_find_weights_problems(name, tuple(model), recipes),
    )


def _find_image_problems(
    name: str, changes: tuple[str, ...], recipes: Path | None
) -> tuple[Problem, ...]:
    from resnet_recipes.data.root import find_root_problem
    from resnet_recipes.recipe.compose import compose

    try:
        config = compose(name, changes, recipes).recipe.data
    except RecipeError:
        return ()
    is_made = config.backend == "synthetic" or (name, Path(config.root)) == (
        "demo",
        DEMO.absolute(),
    )
    problem = None if is_made or is_fetched(config.root) else find_root_problem(config.root)
    return (problem,) if problem else ()


@lru_cache  # most runs of a sweep have the same weights
def _find_weights_problems(
    name: str, changes: tuple[str, ...], recipes: Path | None
) -> tuple[Problem, ...]:
    from resnet_recipes.network.pretrained import open_weights
    from resnet_recipes.recipe.compose import compose

    try:
        config = compose(name, changes, recipes, needs_data=False).recipe.model
    except RecipeError:
        return ()
    try:
        if config.weights:
            open_weights(config)
    except RecipeError as error:
        return error.problems
    return ()
