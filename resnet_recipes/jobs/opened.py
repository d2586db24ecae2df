"""Open a trained network with the settings to use it with.

Those of its run, and a user's changes.
"""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from resnet_recipes.backbones import is_resnet
from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.network.inputs import takes
from resnet_recipes.network.load import load
from resnet_recipes.recipe import frozen, hydra_compose, overrides
from resnet_recipes.recipe.overrides import Override
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.suggestions import did_you_mean
from resnet_recipes.recipe.typed import typed
from resnet_recipes.training.trained import Trained, recipe_of

#: Settings that change how a network is used; the others are for training.
_SETTINGS = (
    "data.root",
    "data.cache",
    "data.backend",
    "data.eval_resize",
    "data.eval_size",
    "data.eval_interpolation",
    "data.fit",
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

#: Settings that some uses have besides.
_OTHERS = ("evaluation.sizes", "launch.gpus")


def opened(place: Path, changes: Sequence[str] = (), also: Sequence[str] = ()) -> Trained:
    """Open the network of a run, a checkpoint or a weights file, with changes to its settings.

    For example "data.eval_size=256".

    `also` are settings that may be changed besides those of every use. Raises RecipeError with
    every problem.
    """
    network = load(place)
    recipe = _changed(recipe_of(place, network), changes, (*_SETTINGS, *also))
    name, own = network.about.architecture, network.about.eval_size
    for size in recipe.evaluation.sizes or [recipe.data.eval_size]:
        if size != own and not (is_resnet(network.model) or takes(network.model, size, size)):
            rule = f"is a size that {name} does not take"
            raise RecipeError.of("data.eval_size", size, rule, f"data.eval_size={own}")
    return Trained(place, network, recipe)


def meant(fix: str, known: Sequence[str] = _SETTINGS) -> str:
    """Return the setting of a trained network that is most like a fix for training, or all."""
    words = shlex.split(fix.removeprefix("did you mean ").removesuffix("?"))
    near = [
        did_you_mean(change.key, known, f"={change.value}") for change in overrides.parse(words)[0]
    ]
    return next(filter(None, near), f"settings here: {', '.join(known)}")


def allowed(words: Sequence[str], known: Sequence[str] = (*_SETTINGS, *_OTHERS)) -> list[Override]:
    """Return what words change. Raises RecipeError unless all are settings of `known`."""
    changes, problems = overrides.parse(words)
    problems = [
        problem._replace(fix=meant(problem.fix, known)) if problem.is_unknown else problem
        for problem in problems
    ]
    problems += [
        Problem(change.key, change.value, "cannot be changed here", meant(str(change), known))
        for change in changes
        if change.key not in known
    ]
    RecipeError.refuse(problems)
    return changes


def _changed(recipe: Recipe, words: Sequence[str], known: Sequence[str]) -> Recipe:
    """Return the recipe with settings changed. Raises RecipeError with every problem."""
    if not words:
        return recipe
    changes = allowed(words, known)
    # other images are not split, unless requested
    if "data.root" in {change.key for change in changes}:
        recipe = replace(recipe, data=replace(recipe.data, val_share=0.0))
    files = {"trained": frozen.tree_of(recipe)}
    tree = hydra_compose.composed("trained", files, changes=[change.word for change in changes])
    changed, wrong = typed(tree)
    RecipeError.refuse(problem for problem in wrong if problem.key != "data.root")
    return changed
