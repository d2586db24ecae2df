"""Write a recipe with every setting to a file, and read it without Hydra."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from resnet_recipes.base.errors import Kind, NotReadyError, Problem
from resnet_recipes.base.field_types import to_plain
from resnet_recipes.base.suggestions import translate_key
from resnet_recipes.recipe import strict_yaml
from resnet_recipes.recipe.build import build_recipe, drop_removed
from resnet_recipes.recipe.schema import Recipe


class _Dumper(yaml.SafeDumper):
    """Quotes text that `strict_yaml` would read differently."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    same = strict_yaml.parse_scalar(text) == text and not strict_yaml.find_text_problem(text, "")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if same else "'")


_Dumper.add_representer(str, _represent_text)


def freeze(recipe: Recipe) -> str:
    """Return the recipe as YAML with every setting; `read` returns an equal recipe.

    The first line is a digest, which shows whether the text was edited.
    """
    text = yaml.dump(
        to_tree(recipe), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True
    )
    return f"{_format_digest(text.encode())}\n{text}"


def _format_digest(text: bytes) -> str:
    return f"# checked: sha256 {hashlib.sha256(text).hexdigest()}"


def _is_unedited(document: strict_yaml.Document) -> bool:
    """Return whether a file has the digest of its content in its first line."""
    digest, _, text = document.raw.partition(b"\n")
    return digest.decode(errors="replace") == _format_digest(text)


def read(path: Path) -> Recipe:
    """Read the output of `freeze`. Raises NotReadyError if it is not readable or not valid.

    An unedited file of an older version may have settings that this version lacks, if they are off.
    """
    document = strict_yaml.load_frozen(path)
    tree = drop_removed(document.tree) if _is_unedited(document) else document.tree
    recipe, problems = build_recipe(tree)
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
