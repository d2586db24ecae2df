"""Write a recipe with every setting to a file, and read it without Hydra."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from resnet_recipes.base.errors import Kind, NotReadyError, Problem
from resnet_recipes.base.field_types import to_plain
from resnet_recipes.base.suggestions import translate_key
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.build import build_recipe
from resnet_recipes.recipe.schema import Recipe


class _Dumper(yaml.SafeDumper):
    """Quotes text that `strict_yaml` would read differently."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    same = strict_yaml.parse_scalar(text) == text and not strict_yaml.find_text_problem(text, "")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if same else "'")


_Dumper.add_representer(str, _represent_text)


def freeze(recipe: Recipe) -> str:
    """Return the recipe as YAML with every setting; `read` returns an equal recipe."""
    return yaml.dump(
        to_tree(recipe), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True
    )


def read(path: Path) -> Recipe:
    """Read the output of `freeze`. Raises NotReadyError if it is not readable or not valid."""
    recipe, problems = build_recipe(strict_yaml.load_frozen(path).tree)
    where = strict_yaml.shorten_path(path)
    located = (problem._replace(where=where) for problem in problems)
    NotReadyError.raise_if_any(
        translate_key(problem)
        if problem.kind is Kind.UNKNOWN and not problem.corrections
        else problem
        for problem in located
    )
    return recipe


def find_problems(recipe: Recipe) -> list[Problem]:
    """Return every problem of a recipe that a program has changed, including items of lists."""
    return build_recipe(to_tree(recipe))[1]


def to_tree(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain mappings, lists and values, without methods that are off."""
    tree = to_plain(asdict(recipe))
    tree["methods"] = {
        name: values for name, values in tree["methods"].items() if values is not None
    }
    return tree
