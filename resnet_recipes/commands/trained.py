"""The trained network that a command's words ask for, with the settings to use it with."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.commands.progress import say

if TYPE_CHECKING:
    from resnet_recipes.network.network import Network
    from resnet_recipes.recipe.schema import Recipe
    from resnet_recipes.training.trained import Trained

#: Settings that change how a network is used; the others are for training.
_SETTINGS = (
    "data.root",
    "data.backend",
    "data.eval_resize",
    "data.eval_size",
    "data.eval_interpolation",
    "data.val_share",
    "data.val_seed",
    "data.nested_classes",
    "data.workers",
    "data.prefetch",
    "batch.eval_size",
    "evaluation.flip",
    "precision.dtype",
    "precision.kernels",
    "launch.device",
)


def trained(words: Sequence[str], usage: str) -> "Trained":
    """Load the network that the first word names, with the settings key=value of the others. Raises RecipeError."""
    from resnet_recipes.training.trained import Trained

    return Trained.on_device(*named(words, usage))


def named(
    words: Sequence[str], usage: str, also: tuple[str, ...] = ()
) -> "tuple[Path, Network, Recipe]":
    """Return where the network is, the network on the CPU, and the recipe; `also` are settings of this command only.

    Raises RecipeError.
    """
    from resnet_recipes.network.load import load
    from resnet_recipes.training.trained import recipe_of

    if not words or (is_setting(words[0]) and not os.path.exists(words[0])):
        rule = "is missing: a run folder, a checkpoint or a weights file"
        raise RecipeError([Problem("RUN|FILE", None, rule, usage)])
    place = typed_path("RUN|FILE", words[0])
    network = load(place)
    if network.note:
        say(f"note: {network.note}")
    return place, network, _changed(recipe_of(place, network), words[1:], (*_SETTINGS, *also))


def is_setting(word: str) -> bool:
    """Return whether a word is written key=value."""
    return word.partition("=")[0].replace(".", "").replace("_", "").isalnum() and "=" in word


def _changed(recipe: "Recipe", words: Sequence[str], known: tuple[str, ...]) -> "Recipe":
    """Return the recipe with settings changed. Raises RecipeError with every problem."""
    if not words:
        return recipe
    from resnet_recipes.recipe import frozen, hydra_compose, overrides
    from resnet_recipes.recipe.typed import typed

    changes, problems = overrides.parse(words)
    problems += [
        Problem(
            change.key, change.value, "cannot be changed here", f"settings here: {', '.join(known)}"
        )
        for change in changes
        if change.key not in known
    ]
    if problems:
        raise RecipeError(problems)
    # other images are not split, unless requested
    if "data.root" in {change.key for change in changes}:
        recipe = replace(recipe, data=replace(recipe.data, val_share=0.0))
    tree = hydra_compose.composed(
        [frozen.tree_of(recipe)], [(change.key, change.read()) for change in changes]
    )
    changed, wrong = typed(tree)
    if wrong := [problem for problem in wrong if problem.key != "data.root"]:
        raise RecipeError(wrong)
    return changed
