"""Open a trained network with the settings of its run and the user's changes."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.backbones import is_resnet
from resnet_recipes.base.errors import Kind, NotReadyError, Problem, RecipeError
from resnet_recipes.base.model_config import ModelConfig, find_implied_settings
from resnet_recipes.base.names import get_full_name
from resnet_recipes.base.suggestions import TRAINED_TRANSLATIONS, find_misspelled
from resnet_recipes.data.base import DataConfig, DataFacts
from resnet_recipes.data.files.layout import list_split
from resnet_recipes.inference.inputs import is_size_accepted
from resnet_recipes.inference.trained_network import TrainedNetwork, find_run, make_recipe
from resnet_recipes.network.load import Network
from resnet_recipes.network.open import open_network
from resnet_recipes.recipe import frozen_recipe, hydra_compose, overrides
from resnet_recipes.recipe.build import build_recipe
from resnet_recipes.recipe.explain import Context, add_suggestion
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder import DATA

#: Settings that choose labeled images.
_DATASET = (
    "data.root",
    "data.cache",
    "data.val_share",
    "data.val_seed",
    "data.nested_classes",
)
#: Settings of labeled and unlabeled images.
_IMAGES = (
    "data.backend",
    "data.eval_resize",
    "data.eval_size",
    "data.eval_interpolation",
    "data.fit",
    "data.workers",
    "data.prefetch",
    "batch.eval_size",
    "evaluation.flip",
)
_MACHINE = ("precision.dtype", "precision.kernels", "launch.device")

#: Settings of a trained network, by command; the other settings are for training.
SETTINGS = {
    "predict": (*_IMAGES, *_MACHINE),
    "export": (*_DATASET, *_IMAGES),  # always in float32, on the CPU
    "doctor": (*_DATASET, *_IMAGES, *_MACHINE),
    "eval": (*_DATASET, *_IMAGES, "evaluation.sizes", *_MACHINE, "launch.gpus"),
}

#: Settings for a file that does not describe its network.
_MODEL_SETTINGS = ("model.name=", "model.args.")


def open_trained(
    source: Path | Network,
    changes: Sequence[str] = (),
    settings: Sequence[str] = SETTINGS["doctor"],
) -> TrainedNetwork:
    """Open a network object, a run, a checkpoint, a weights file or a published name.

    `changes` are settings of the images and the machine, such as "data.eval_size=256", and
    model.name for a file that does not describe its network. Raises RecipeError if a change is
    wrong or not one of `settings`, NotReadyError if the network cannot be read.
    """
    model, others = parse_model(changes)
    if isinstance(source, Network):
        path, network = None, source
    else:
        path = source
        network = open_network(str(source), model, downloads=True)
    name, eval_size = network.about.architecture, network.about.eval_size
    if model and model.name != name:
        clause = f"is not the network of {source}, which is {name}"
        raise RecipeError.of("model.name", model.name, clause, f"model.name={name}")
    recipe = apply_changes(make_recipe(path, network), others, settings, find_run(path))
    for size in recipe.evaluation.sizes or [recipe.data.eval_size]:
        if size != eval_size and not (
            is_resnet(network.model) or is_size_accepted(network.model, size, size)
        ):
            clause = f"is a size that {name} does not accept"
            raise RecipeError.of("data.eval_size", size, clause, f"data.eval_size={eval_size}")
    return TrainedNetwork(path, network, recipe)


class ParsedModel(NamedTuple):
    """A network named by command-line arguments, and the other arguments."""

    model: ModelConfig | None
    others: list[str]


def parse_model(arguments: Sequence[str]) -> ParsedModel:
    """Return the network that `model.name` and `model.args` name, and the other arguments."""
    chosen = [argument for argument in arguments if argument.startswith(_MODEL_SETTINGS)]
    others = [argument for argument in arguments if argument not in chosen]
    if not chosen:
        return ParsedModel(None, others)
    keys = [argument.partition("=")[0] for argument in chosen]
    names = (
        argument.partition("=")[2] for argument in chosen if argument.startswith("model.name=")
    )
    name = next(names, "")
    model = ModelConfig(**find_implied_settings(name)) if name else ModelConfig()
    changed = apply_changes(Recipe("file", model=model), chosen, keys)
    return ParsedModel(changed.model, others)


def apply_changes(
    recipe: Recipe, arguments: Sequence[str], settings: Sequence[str], run: Path | None = None
) -> Recipe:
    """Return a recipe with some of `settings` changed. Raises RecipeError with all problems.

    `run` is the folder of the recipe's run, to recognize a copy of its images.
    """
    changed, problems = _change_settings(recipe, settings, arguments, run)
    context = Context(
        recipe.name,
        # before a network is open, its recipe has no name, and hints name the defaults
        lambda key: reduce(
            lambda value, name: getattr(value, name, None),
            get_full_name(key).split("."),
            recipe if recipe.name else None,
        ),
        allowed=settings,
        translations=TRAINED_TRANSLATIONS,
    )
    RecipeError.raise_if_any(add_suggestion(problem, arguments, context) for problem in problems)
    return changed


def _has_same_images(config: DataConfig, root: str, run: Path | None) -> bool:
    """Return whether `root` is the folder of `config`, or has the validation images of `run`."""
    if os.path.realpath(root) == os.path.realpath(config.root):
        return True
    with suppress(NotReadyError, OSError):  # then the images cannot be compared
        if config.sets_aside and run:
            digest = list_split(replace(config, root=root), "val").digest
            return digest == DataFacts.read(run / DATA, config.root).eval_digest
    return False


def _change_settings(
    recipe: Recipe, settings: Sequence[str], arguments: Sequence[str], run: Path | None
) -> tuple[Recipe, list[Problem]]:
    changes, problems = overrides.parse(arguments)
    keys = [change.key for change in changes]
    # do not split other images, unless a change sets data.val_share or data.fold
    roots = [change.value for change in changes if change.key == "data.root" and change.value]
    if roots and not _has_same_images(recipe.data, roots[-1], run):
        recipe = replace(recipe, data=replace(recipe.data, val_share=0.0, fold=""))
    before = frozen_recipe.to_tree(recipe)
    arguments = [change.argument for change in changes]
    changed, wrong = build_recipe(
        hydra_compose.compose_tree("trained", {"trained": before}, changes=arguments)
    )
    # problems without the changes, for example in a file from an older version, and consequences
    # of a rejected change
    earlier = {problem.key for problem in build_recipe(before)[1]}
    wrong_keys = {problem.key for problem in wrong}
    earlier |= wrong_keys if wrong_keys & {*keys} else set()
    earlier |= {key for key in keys if key not in settings}
    keys = [key for key in keys if key in settings]
    problems += [problem for problem in wrong if problem.key in keys or problem.key not in earlier]
    for change in {change.typed: change for change in changes}.values():
        if change.key not in settings:
            near = find_misspelled(change.key, settings)
            is_known = change.key in SETTINGS["eval"]
            clause = "cannot be changed here" if is_known else "is a setting of training"
            fix, kind = (f"{near}={change.value}", Kind.WRONG) if near else ("", Kind.UNUSED)
            problems.append(Problem(change.key, change.value, clause, fix, kind=kind))
    return changed, problems
