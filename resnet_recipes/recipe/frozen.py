"""A recipe as a file: everything that a run was started with, readable without Hydra."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.typed import plain, typed

#: Settings that earlier versions wrote, with the values of what every run now does.
_REMOVED = (("data", "decode", "cpu"),)

#: New names of values, by section, setting and old value.
_REWORDED = {("model", "init", "torchvision"): "library"}

#: New names of methods' settings, by method and old name.
_RENAMED = {"progressive_resizing": {"decided_at": "size_from_epoch"}}

#: Settings of earlier versions that only said how a run was started.
_STARTED_BY = (("launch", "nodes"), ("launch", "rdzv"))


def freeze(recipe: Recipe) -> str:
    """Return the recipe as YAML with every setting written out.

    `read` gives back an equal recipe.
    """
    return yaml.safe_dump(tree_of(recipe), sort_keys=False, width=120, allow_unicode=True)


def read(path: Path) -> Recipe:
    """Read what `freeze` wrote, in this version or an earlier one.

    Raises RecipeError if an edit made it invalid.
    """
    recipe, problems = typed(updated(strict_yaml.load(Path(path)).tree))
    if problems:
        raise RecipeError(
            problem._replace(key=f"{strict_yaml.shown(Path(path))}: {problem.key}")
            for problem in problems
        )
    return recipe


def problems(recipe: Recipe) -> list[Problem]:
    """Return everything wrong with a recipe that a program has changed, even inside its lists."""
    return typed(tree_of(recipe))[1]


def updated(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe of an earlier version as this one writes it.

    It lacks settings that ask for what every run now does; renamed ones have their new names.
    """
    tree = dict(tree)
    for section, settings in tree.items():
        if isinstance(settings, dict):
            tree[section] = {
                name: _REWORDED.get((section, name, str(setting)), setting)
                for name, setting in settings.items()
                if (section, name, setting) not in _REMOVED and (section, name) not in _STARTED_BY
            }
    for method, names in _RENAMED.items():
        methods = tree.get("methods")
        settings = methods.get(method) if isinstance(methods, dict) else None
        if isinstance(settings, dict):
            renamed = {names.get(name, name): setting for name, setting in settings.items()}
            tree["methods"] = methods | {method: renamed}
    return tree


def tree_of(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain mappings, lists and values; methods that are off are left out."""
    tree = plain(asdict(recipe))
    tree["methods"] = {
        name: values for name, values in tree["methods"].items() if values is not None
    }
    return tree
