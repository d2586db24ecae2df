"""Checks that tests of several packages share: errors, texts, and bit-identical tensors."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import pytest
import torch

from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.recipe.compose import compose

Error = TypeVar("Error", bound=Exception)


def get_error(
    kind: type[Error], call: Callable[..., Any], *arguments: Any, **options: Any
) -> Error:
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    return caught.value


def get_problem(
    kind: type[RecipeError | NotReadyError],
    call: Callable[..., Any],
    *arguments: Any,
    **options: Any,
) -> Problem:
    (problem,) = get_error(kind, call, *arguments, **options).problems
    return problem


def get_recipe_error(recipe: str, *arguments: str) -> RecipeError:
    """Compose a recipe with changes that must be rejected, without data; return the error."""
    return get_error(RecipeError, compose, recipe, arguments, needs_data=False)


def check_text(text: str, parts: Iterable[str]) -> None:
    """Assert that a text contains all parts, except those that start with `!`."""
    wrong = [part for part in parts if (part.lstrip("!") in text) == part.startswith("!")]
    assert wrong == [], text


def is_identical(ours: Any, theirs: Any) -> bool:
    """Return whether values, or sections and sequences of values, are bit-identical."""
    if isinstance(ours, torch.Tensor | np.ndarray):
        one = torch.as_tensor(ours)
        other = torch.as_tensor(theirs)
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and is_identical(ours.values(), map(theirs.get, ours))
    if isinstance(ours, Iterable) and not isinstance(ours, str):
        return all(is_identical(*pair) for pair in zip(ours, theirs, strict=True))
    return ours == theirs
