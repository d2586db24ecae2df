"""`resnet-train --resume`: continue a run that stopped."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.commands.progress import say

if TYPE_CHECKING:
    from resnet_recipes.recipe.schema import Recipe

ROOT = Path("runs")

#: Settings that name a run.
_NAMING = ("run=", "run.name=", "run.root=")


def named(run: str, words: Sequence[str]) -> Path | None:
    """Continue `run`, or with `auto` the newest unfinished one, with changed settings.

    Return its folder, or None if it is finished. Raises RecipeError if there is no such run, or if
    a change would make it a different one.
    """
    if run != "auto":
        rule = "--resume chooses the run, and a run keeps its recipe"
        if wrong := [word for word in words if word.startswith(("recipe=", *_NAMING))]:
            raise RecipeError(Problem(word, None, rule, "leave it out") for word in wrong)
        return continued(typed_path("--resume", run), words)
    name = next(
        (word.partition("=")[2] for word in words if word.startswith(("run=", "run.name="))), None
    )
    root = root_of(words)
    folder = root / name if name else next(unfinished(root), None)
    if folder is None:
        fix = "resnet-train recipe=mild data=... starts one"
        raise RecipeError(
            [Problem("--resume", "auto", f"there is no unfinished run in {root}", fix)]
        )
    return continued(folder, [word for word in words if not word.startswith(_NAMING)])


def matching(recipe: "Recipe") -> Path | None:
    """Return the folder of the run to continue with `recipe`: the run of its name, or else the newest that fits.

    None if there is none. Raises RecipeError if the run of its name has different settings.
    """
    root = Path(recipe.run.root)
    if recipe.run.name != "auto":
        folder = root / recipe.run.name
        if not (folder / "config.yaml").is_file():
            return None
        if problems := _changes(folder, recipe):
            fix = f"run=another, or leave it as it was in {folder}"
            raise RecipeError(problem._replace(fix=fix) for problem in problems)
        return folder
    others = ""
    for folder in unfinished(root):
        if not (problems := _changes(folder, recipe)):
            return folder
        keys = ", ".join(problem.key for problem in problems[:3])
        others = others or f" (the newest, {folder.name}, differs in {keys})"
    say(f"no unfinished run in {root} has these settings{others}: starting a new one")
    return None


def continued(folder: Path, changes: "Sequence[str] | Recipe") -> Path | None:
    """Prepare a run folder to continue with changed settings, and return it; None if the run is finished.

    Raises RecipeError if a change would make it a different run.
    """
    from resnet_recipes.process.folder import refuse_links
    from resnet_recipes.recipe import frozen
    from resnet_recipes.recipe.compose import compose
    from resnet_recipes.training.state import changed_settings

    config = folder / "config.yaml"
    if not config.is_file():
        rule = "is not a run folder: it has no config.yaml"
        raise RecipeError(
            [Problem("--resume", str(folder), rule, "resnet-train --resume runs/NAME")]
        )
    refuse_links(folder)
    began = frozen.read(config)
    if isinstance(changes, Sequence):
        recipe = compose(str(config), changes).recipe if changes else began
    else:
        recipe = replace(changes, run=began.run)
    if problems := list(changed_settings(asdict(began), recipe)):
        raise RecipeError(problems)
    if (folder / "summary.json").exists():
        say(f"{folder} is finished; its results are in {folder / 'summary.json'}")
        return None
    if recipe != began:
        atomic.write_text(config, frozen.freeze(recipe))  # all nodes may do this at once
    say(f"resuming {folder}")
    return folder


def root_of(words: Sequence[str]) -> Path:
    """Return the folder of all runs: run.root among the words, or its default."""
    root = next((word.partition("=")[2] for word in words if word.startswith("run.root=")), None)
    return typed_path("run.root", root) if root else ROOT


def unfinished(root: Path) -> Iterator[Path]:
    """Yield the run folders without a summary, the newest first."""
    configs = [
        path
        for path in root.glob("[!.]*/config.yaml")
        if not (path.parent / "summary.json").exists()
    ]
    for config in sorted(configs, key=lambda path: path.stat().st_mtime, reverse=True):
        yield config.parent


def _changes(folder: Path, recipe: "Recipe") -> list[Problem]:
    """Return what prevents `recipe` from continuing the run in `folder`."""
    from resnet_recipes.recipe import frozen
    from resnet_recipes.training.state import changed_settings

    try:
        began = frozen.read(folder / "config.yaml")
    except RecipeError as error:
        return list(error.problems)
    problems = list(changed_settings(asdict(began), recipe))
    if recipe.run.name == "auto" and began.data.root != recipe.data.root:
        problems.append(
            Problem("data.root", recipe.data.root, f"was {began.data.root} when the run began")
        )
    return problems
