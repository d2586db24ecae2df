"""A recipe as a file: everything that a run was started with, readable without Hydra."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.typed import typed

#: Settings of earlier versions, by section, each with the value that is still what a run does.
_REMOVED = {"data": {"decode": "cpu"}}


def freeze(recipe: Recipe) -> str:
    """Return the recipe as YAML with every setting written out; `read` gives back an equal recipe."""
    return yaml.safe_dump(tree_of(recipe), sort_keys=False, width=120, allow_unicode=True)


def read(path: Path) -> Recipe:
    """Read what `freeze` wrote, in this version or an earlier one. Raises RecipeError if an edit made it invalid."""
    tree = strict_yaml.load(Path(path)).tree
    removed = list(_take_removed(tree))
    recipe, problems = typed(tree)
    if problems := removed + problems:
        raise RecipeError(
            problem._replace(key=f"{strict_yaml.shown(Path(path))}: {problem.key}")
            for problem in problems
        )
    return recipe


def _take_removed(tree: dict[str, Any]) -> Iterator[Problem]:
    """Remove settings of earlier versions; yield a problem for each that asks for what no longer exists."""
    for section, removed in _REMOVED.items():
        settings = tree.get(section)
        for name in removed.keys() & settings if isinstance(settings, dict) else ():
            if (value := settings.pop(name)) != removed[name]:
                fix = f"delete the line and it is {removed[name]}"
                yield Problem(f"{section}.{name}", value, "is no longer a setting", fix)


def tree_of(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain mappings, lists and values; methods that are off are left out."""
    tree = _plain(asdict(recipe))
    tree["methods"] = {
        name: values for name, values in tree["methods"].items() if values is not None
    }
    return tree


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
