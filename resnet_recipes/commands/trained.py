"""A trained network as the words of a command name it, with the settings to feed it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.paths import typed_path

if TYPE_CHECKING:
    import torch
    from torch import nn

    from resnet_recipes.config import Recipe
    from resnet_recipes.data.base import EvalLoader
    from resnet_recipes.network.about import About
    from resnet_recipes.train.precision import Precision

#: Settings that change how a network is used. The others belong to its training.
_SETTINGS = ("data.root", "data.backend", "data.eval_resize", "data.eval_size", "data.workers", "data.prefetch",
             "batch.eval_size", "evaluation.flip", "precision.dtype", "precision.kernels", "launch.device")


@dataclass
class Trained:
    """A network on its device, and a recipe of which only the settings that it is used with count."""

    place: Path           # run folder or file
    model: "nn.Module"
    about: "About"
    note: str
    recipe: "Recipe"
    precision: "Precision"

    @property
    def device(self) -> "torch.device":
        """The device that it is on."""
        return self.precision.device

    def open_images(self) -> "EvalLoader":
        """Open the labelled images at data.root; for a run those that it was evaluated on. Raises NotReadyError."""
        from resnet_recipes import data
        from resnet_recipes.data import frozen
        from resnet_recipes.data.base import Share
        from resnet_recipes.data.unseen import open_labelled

        config, size = self.recipe.data, self.recipe.batch.eval_size
        share, facts = Share(0, 1, size, size, 0), self.place / frozen.NAME
        if facts.is_file() and config.root == _recipe_of(self.place, self.about).data.root:
            return data.open_eval(config, frozen.load(facts, config.root), share)
        if not config.root:
            raise NotReadyError([Problem("data.root", None, "is not set: say where the images are", "data=PATH")])
        return open_labelled(config, self.about.classes, self.about.num_classes, share)


def trained(words: Sequence[str], usage: str) -> Trained:
    """Load the network that the first word names, with the settings key=value of the others. Raises RecipeError."""
    from resnet_recipes import ops
    from resnet_recipes.network.fuse import fuse
    from resnet_recipes.network.load import load
    from resnet_recipes.train.distributed import this_rank
    from resnet_recipes.train.precision import Precision, resolve_dtype

    if not words or (is_setting(words[0]) and not os.path.exists(words[0])):
        rule = "is missing: a run folder, a checkpoint or a weights file"
        raise RecipeError([Problem("RUN|FILE", None, rule, usage)])
    place = typed_path("RUN|FILE", words[0])
    model, about, note = load(place)
    recipe = _changed(_recipe_of(place, about), words[1:], usage)
    device = this_rank(recipe.launch.device).device
    precision = Precision(device, resolve_dtype(recipe.precision.dtype, device), model.to(device))
    if recipe.precision.kernels == "auto":
        fuse(model, ops.choose(device, precision.dtype))
    return Trained(place, model, about, note, recipe, precision)


def is_setting(word: str) -> bool:
    """Tell whether a word is written key=value."""
    return word.partition("=")[0].replace(".", "").replace("_", "").isalnum() and "=" in word


def _recipe_of(place: Path, about: "About") -> "Recipe":
    """Return a run's own recipe, or the defaults with what a file says about its images."""
    from resnet_recipes.composing import frozen
    from resnet_recipes.config import EvaluationConfig, Recipe
    from resnet_recipes.data.base import DataConfig

    if (config := place / "config.yaml").is_file():
        return frozen.read(config)
    data = DataConfig(eval_resize=about.eval_resize, eval_size=about.eval_size)
    return Recipe(name="file", data=data, evaluation=EvaluationConfig(flip=about.flip))


def _changed(recipe: "Recipe", words: Sequence[str], usage: str) -> "Recipe":
    """Return the recipe with settings changed. Raises RecipeError with every problem."""
    if not words:
        return recipe
    from resnet_recipes.composing import frozen, hydra_compose, overrides
    from resnet_recipes.composing.typed import typed

    changes, problems = overrides.parse(words)
    problems += [Problem(change.key, change.value, "is a setting of training, which is over",
                         f"settings here: {', '.join(_SETTINGS)}") for change in changes if change.key not in _SETTINGS]
    if problems:
        raise RecipeError(problems)
    tree = hydra_compose.composed([frozen.tree_of(recipe)], [change.for_hydra() for change in changes])
    changed, wrong = typed(tree)
    if wrong := [problem for problem in wrong if problem.key != "data.root"]:
        raise RecipeError(wrong)
    return changed
