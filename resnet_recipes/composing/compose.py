"""One recipe out of a name and a user's changes."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resnet_recipes.composing import frozen
from resnet_recipes.composing import overrides as words
from resnet_recipes.composing.library import Entry, Library
from resnet_recipes.composing.overrides import Override, absolute
from resnet_recipes.composing.strict_yaml import Document
from resnet_recipes.composing.typed import settings, typed
from resnet_recipes.config import Recipe
from resnet_recipes.errors import Problem, RecipeError

Links = list[tuple[Entry, Document]]      # a recipe's files, the most basic one first


@dataclass(frozen=True)
class Composed:
    """A recipe that is ready to be planned, and where it came from."""

    recipe: Recipe
    entry: Entry
    files: dict[str, str]               # every file that was read, the most basic one first, with its SHA-256
    overrides: tuple[Override, ...]     # in the order in which they were typed, short spellings expanded


def compose(name: str, changes: Sequence[str] = (), folder: Path | None = None, needs_data: bool = True) -> Composed:
    """Compose a recipe by name or path, apply the changes ("optimizer.lr=1.0", "~methods.ema", "epochs=18"), and check all of it.

    `folder` holds the user's recipes (default ./recipes). Without `needs_data`, data.root may be left open. Raises RecipeError with
    every problem at once.
    """
    links = Library(folder).chain(name)
    overrides, problems = words.parse(changes, settings())
    known = [override for override in overrides if override.key in settings()]
    unreadable = {override: problem for override in known if (problem := _unreadable(override))}
    tree = _merged(links, [override for override in known if override not in unreadable])
    _claim(tree, links, known)
    recipe, wrong = typed(tree)
    wrong = [problem for problem in wrong if needs_data or problem.key != "data.root"]
    problems += [*unreadable.values(), *_idle_removals(known, links), *(_located(problem, known, links) for problem in wrong)]
    if problems:
        raise RecipeError(problems)
    recipe.data.root, recipe.run.root = absolute("data.root", recipe.data.root), absolute("run.root", recipe.run.root)
    files = {str(entry.path): hashlib.sha256(document.raw).hexdigest() for entry, document in links}
    return Composed(recipe, links[-1][0], files, tuple(overrides))


def _merged(links: Links, overrides: list[Override]) -> dict[str, Any]:
    """Let Hydra compose what was read, and the overrides. Hydra itself reads no file."""
    import hydra
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    defaults = frozen.tree_of(Recipe()) | {"optimizer": {}}      # each optimizer has its own
    ConfigStore.instance().store(_node(0), defaults)             # so that references find settings left at their default
    for index, (_, document) in enumerate(links, 1):
        own = {key: value for key, value in document.tree.items() if key != "defaults"}
        ConfigStore.instance().store(_node(index), {"defaults": [_node(index - 1), "_self_"], **own})
    version = {"version_base": "1.3"} if hydra.__version__.startswith("1.3") else {}
    changes = [override.for_hydra(settings()[override.key]) for override in overrides]
    others = GlobalHydra.instance().hydra               # of a notebook, or of a program around this one
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize(config_path=None, **version):
            config = hydra.compose(_node(len(links)), changes)
        return OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException, RecursionError) as error:
        reason = " ".join(str(error.__cause__ or error).split())[:200]
        raise RecipeError([Problem(links[-1][0].place, None, f"cannot be composed: {reason}")]) from None
    finally:
        GlobalHydra.instance().hydra = others
        for index in range(len(links) + 1):
            ConfigStore.instance().repo.pop(f"{_node(index)}.yaml", None)


def _node(index: int) -> str:
    return f"resnet_recipes_link_{index}"


def _unreadable(override: Override) -> Problem | None:
    """Return why a value cannot be read."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(override.for_hydra(settings()[override.key]))
    except (HydraException, ValueError):
        return Problem(override.key, override.value, "cannot be read", "put the whole word in quotes if it has spaces, brackets or commas")
    if parsed.is_sweep_override():
        return Problem(override.key, override.value, "must be one value", f"a list is written {override.key}=[a,b]")
    return None


def _claim(tree: dict[str, Any], links: Links, overrides: list[Override]) -> None:
    """Give a recipe that inherits its own name; its parents' published results are not its own."""
    entry, document = links[-1]
    if not any(override.key == "name" for override in overrides):
        tree["name"] = document.tree.get("name", entry.path.stem)
    for key in ("about", "published"):
        if key not in document.tree:
            tree.pop(key, None)


def _idle_removals(overrides: list[Override], links: Links) -> list[Problem]:
    """Return a problem for each method that is removed but not on, where nothing would change."""
    sections = [document.tree.get("methods") for _, document in links]
    names = {name for section in sections if isinstance(section, dict) for name, value in section.items() if value is not None}
    return [Problem(override.typed, None, f"is not on in {links[-1][0].name}", f"methods that are on: {', '.join(sorted(names)) or 'none'}")
            for override in overrides if override.value is None and override.key.startswith("methods.")
            and override.key.removeprefix("methods.") not in names]


def _located(problem: Problem, overrides: list[Override], links: Links) -> Problem:
    """Name file and line of a setting that stands in a recipe and that no override has touched."""
    if any(f"{problem.key}.".startswith(f"{override.key}.") for override in overrides):
        return problem
    for _, document in reversed(links):
        if problem.key in document.lines:
            return problem._replace(key=f"{document.where(problem.key)}: {problem.key}")
    return problem
