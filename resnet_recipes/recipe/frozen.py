"""A recipe as a file: everything that a run was started with, readable without Hydra."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.recipe import scalars, strict_yaml
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.typed import plain, typed


class _Dumper(yaml.SafeDumper):
    """Puts text in quotes wherever `strict_yaml` would not read it as the same text."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    same = scalars.plain(text) == text and not scalars.doubtful(text, "")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if same else "'")


_Dumper.add_representer(str, _text)


def freeze(recipe: Recipe) -> str:
    """Return the recipe as YAML with every setting written out.

    `read` gives back an equal recipe.
    """
    return yaml.dump(
        tree_of(recipe), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True
    )


def read(path: Path) -> Recipe:
    """Read what `freeze` wrote. Raises RecipeError if an edit made it invalid."""
    recipe, problems = typed(strict_yaml.load(Path(path)).tree)
    if problems:
        raise RecipeError(
            problem._replace(key=f"{strict_yaml.shown(Path(path))}: {problem.key}")
            for problem in problems
        )
    return recipe


def problems(recipe: Recipe) -> list[Problem]:
    """Return everything wrong with a recipe that a program has changed, even inside its lists."""
    return typed(tree_of(recipe))[1]


def tree_of(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain mappings, lists and values; methods that are off are left out."""
    tree = plain(asdict(recipe))
    tree["methods"] = {
        name: values for name, values in tree["methods"].items() if values is not None
    }
    return tree
