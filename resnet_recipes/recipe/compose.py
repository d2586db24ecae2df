"""Compose one recipe from a name and a user's changes."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnet_recipes.base import names
from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.recipe import frozen, hydra_compose, overrides
from resnet_recipes.recipe.library import Entry, Library
from resnet_recipes.recipe.overrides import Override, absolute
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.strict_yaml import Document
from resnet_recipes.recipe.typed import fitting, typed

Links = list[tuple[Entry, Document]]  # a recipe's files, the most basic one first


@dataclass(frozen=True)
class Composed:
    """A recipe that is ready to be planned, and where it came from."""

    recipe: Recipe
    entry: Entry
    files: dict[str, str]  # every file that was read, the most basic one first, with its SHA-256
    # in the order in which they were typed, short spellings expanded
    overrides: tuple[Override, ...]


def compose(
    name: str, changes: Sequence[str] = (), folder: Path | None = None, needs_data: bool = True
) -> Composed:
    """Compose a recipe by name or path, apply changes ("optimizer.lr=1.0", "~methods.ema", "epochs=18"), and check it.

    `folder` holds the user's recipes (default ./recipes). Without `needs_data`, data.root may be
    unset. Raises RecipeError with every problem at once.
    """
    links = Library(folder).chain(name)
    changed, problems = overrides.parse(changes)
    # for references to defaults; those of optimizers differ
    trees = [frozen.tree_of(Recipe()) | {"optimizer": {}}]
    for _, document in links:
        tree, wrong = fitting(
            {key: value for key, value in document.tree.items() if key != "defaults"}, in_file=True
        )
        trees.append(tree)
        problems += [_placed(problem, document) for problem in wrong]
    try:
        tree = hydra_compose.composed(
            trees, [(override.key, override.read()) for override in changed]
        )
    except ValueError as error:
        raise RecipeError(
            [*problems, Problem(links[-1][0].place, None, f"cannot be composed: {error}")]
        ) from None
    _claim(tree, links, changed)
    recipe, wrong = typed(tree)
    problems += _idle_removals(changed, links)
    problems += [
        _located(problem, changed, links)
        for problem in wrong
        if needs_data or problem.key != "data.root"
    ]
    if problems:
        raise RecipeError(problems)
    recipe.data.root, recipe.run.root = (
        absolute("data.root", recipe.data.root),
        absolute("run.root", recipe.run.root),
    )
    weights = recipe.model.weights
    if weights and not names.WEIGHTS.fullmatch(weights):
        recipe.model.weights = absolute("model.weights", weights)
    files = {str(entry.path): hashlib.sha256(document.raw).hexdigest() for entry, document in links}
    return Composed(recipe, links[-1][0], files, tuple(changed))


def _claim(tree: dict[str, Any], links: Links, changed: list[Override]) -> None:
    """Give a recipe that inherits its own name, and drop the description and published results of its parents."""
    entry, document = links[-1]
    if not any(override.key == "name" for override in changed):
        tree["name"] = document.tree.get("name", entry.path.stem)
    for key in ("about", "published"):
        if key not in document.tree:
            tree.pop(key, None)


def _idle_removals(changed: list[Override], links: Links) -> Iterator[Problem]:
    """Yield a problem for each removed method that is not on: such an ablation would change nothing."""
    sections = [document.tree.get("methods") for _, document in links]
    methods = [
        item for section in sections if isinstance(section, dict) for item in section.items()
    ]
    on = {name for name, value in methods if value is not None}
    removed = [
        override
        for override in changed
        if override.value is None and override.key.startswith("methods.")
    ]
    for override in removed:
        if override.key.removeprefix("methods.") not in on:
            yield Problem(
                override.typed,
                None,
                f"is not on in {links[-1][0].name}",
                f"methods that are on: {', '.join(sorted(on)) or 'none'}",
            )


def _located(problem: Problem, changed: list[Override], links: Links) -> Problem:
    """Name file and line of a setting that comes from a recipe file, unless an override has touched it."""
    if any(f"{problem.key}.".startswith(f"{override.key}.") for override in changed):
        return problem
    return next(
        (
            _placed(problem, document)
            for _, document in reversed(links)
            if problem.key in document.lines
        ),
        problem,
    )


def _placed(problem: Problem, document: Document) -> Problem:
    return problem._replace(key=f"{document.where(problem.key)}: {problem.key}")
