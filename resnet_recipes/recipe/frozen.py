"""A recipe as a file: everything that a run was started with, readable without Hydra."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.typed import build, plain, typed


class _Dumper(yaml.SafeDumper):
    """Puts text in quotes wherever `strict_yaml` would not read it as the same text."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    same = strict_yaml.plain(text) == text and not strict_yaml.doubtful(text, "")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if same else "'")


_Dumper.add_representer(str, _text)


def freeze(recipe: Recipe) -> str:
    """Return the recipe as YAML with every setting written out; `read` gives back an equal one."""
    return yaml.dump(
        tree_of(recipe), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True
    )


def sealed(recipe: Recipe) -> str:
    """Return what `freeze` does, below its digest: ranks need not judge the recipe again."""
    text = freeze(recipe)
    return f"{_seal(text.encode())}\n{text}"


def _seal(text: bytes) -> str:
    return f"# judged: {hashlib.sha256(text).hexdigest()}"


def read_sealed(path: Path) -> Recipe:
    """Read in a rank what its launcher has judged and sealed; judge it if it was edited since."""
    document, problems = strict_yaml.load(path), list[Problem]()
    seal, _, text = document.raw.partition(b"\n")
    if seal.decode() != _seal(text):
        return read(path)
    recipe: Recipe = build(Recipe, document.tree, "", problems)
    return read(path) if problems else recipe


def read(path: Path) -> Recipe:
    """Read what `freeze` wrote. Raises RecipeError if an edit made it invalid."""
    recipe, problems = typed(strict_yaml.load(Path(path)).tree)
    place = strict_yaml.shown(Path(path))
    RecipeError.refuse(one._replace(key=f"{place}: {one.key}") for one in problems)
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
