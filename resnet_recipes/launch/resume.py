"""The run that a command continues: found in its folder, and checked to stay the same run."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from resnet_recipes.base import atomic
from resnet_recipes.base.errors import NotReadyError, Problem, RecipeError
from resnet_recipes.base.paths import is_fetched
from resnet_recipes.data.root import root_problem
from resnet_recipes.measure.runs import newest
from resnet_recipes.process.folder import refuse_links
from resnet_recipes.process.lock import locked
from resnet_recipes.recipe import frozen
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.recipe.sections import AUTO
from resnet_recipes.report import trackers
from resnet_recipes.report.recorder import SUMMARY
from resnet_recipes.training.state import changed_settings


def matching(recipe: Recipe, say: Callable[[str], None]) -> Path | None:
    """Return the folder of the run to continue with `recipe`.

    The run of its name, or else the newest that fits.

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


def continued(
    folder: Path, changes: Sequence[str] | Recipe, say: Callable[[str], None]
) -> Path | None:
    """Prepare a run folder to continue with changed settings, and return it.

    None if the run is finished.

    Raises what `checked` does, and NotReadyError if settings change while the run is running.
    """
    recipe = checked(folder, changes)
    if (folder / SUMMARY).exists():
        say(f"{folder} is finished; its results are in {folder / SUMMARY}")
        return None
    config = folder / "config.yaml"
    if recipe != frozen.read(config):
        with locked(folder):  # refused while the run is running
            atomic.write_text(config, frozen.freeze(recipe))
    say(f"resuming {folder}")
    return folder


def checked(folder: Path, changes: Sequence[str] | Recipe) -> Recipe:
    """Return the recipe with which a run continues: its own, with changed settings.

    Raises RecipeError if a change would make it a different run, NotReadyError if its images are
    not where they were.
    """
    config = folder / "config.yaml"
    if not config.is_file():
        rule = "is not a run folder: it has no config.yaml"
        raise RecipeError.of("--resume", str(folder), rule, "resnet-train --resume runs/NAME")
    refuse_links(folder)
    began = frozen.read(config)
    if isinstance(changes, Sequence):
        recipe = _changed(began, changes) if changes else began
    else:
        recipe = replace(changes, run=began.run)
        if changes.batch.bn_size == AUTO:  # the number was found when the run began
            recipe = replace(recipe, batch=replace(changes.batch, bn_size=began.batch.bn_size))
    problems = list(changed_settings(asdict(began), recipe))
    if recipe.batch.bn_size == AUTO:
        rule = f"is found when a run begins; this one began with {began.batch.bn_size}"
        problems.append(Problem("batch.bn_size", AUTO, rule, "type a smaller number"))
    if problems:
        raise RecipeError(problems)
    if not (folder / SUMMARY).exists():
        missing = [*trackers.lacking(recipe.log.to), *filter(None, [_moved_data(recipe, folder)])]
        if missing:
            raise NotReadyError(missing)
    return recipe


def _changed(began: Recipe, changes: Sequence[str]) -> Recipe:
    """Return a run's recipe with changes."""
    with TemporaryDirectory(prefix="resnet-recipes-") as place:
        config = Path(place) / "config.yaml"  # the run's own may lack newer settings
        config.write_bytes(frozen.freeze(began).encode())
        return compose(str(config), changes).recipe


def _moved_data(recipe: Recipe, folder: Path) -> Problem | None:
    """Return what is wrong with a resumed run's images, with the command that continues it."""
    root = recipe.data.root
    problem = None
    if recipe.data.backend != "synthetic" and not is_fetched(root):
        problem = root_problem(root)
    if problem is None:
        return None
    meant = problem.fix if problem.fix.startswith("data=") else "data=/where/it/is/now"
    fix = f"if it was moved:  resnet-train --resume {shlex.quote(str(folder))} {meant}"
    return problem._replace(fix=fix)


def unfinished(root: Path) -> Iterator[Path]:
    """Yield the run folders without a summary, the newest first."""
    return (folder for folder in newest(root) if not (folder / SUMMARY).exists())


def _changes(folder: Path, recipe: Recipe) -> list[Problem]:
    """Return what prevents `recipe` from continuing the run in `folder`."""
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
