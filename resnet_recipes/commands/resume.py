"""The run that `--resume` means."""

from collections.abc import Sequence
from pathlib import Path

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.composed import composed
from resnet_recipes.commands.places import ROOT, run_place
from resnet_recipes.commands.progress import say
from resnet_recipes.jobs.resume import matching, unfinished
from resnet_recipes.recipe.schema import Recipe

#: Settings that name a run.
_NAMING = ("run=", "run.name=", "run.root=")


def to_resume(arguments: Arguments) -> tuple[Path, Sequence[str] | Recipe] | None:
    """Return the folder of the run to continue, and its changes or its recipe; None to start one.

    Raises RecipeError if there is no such run.
    """
    named, words = arguments.flags.get("--resume"), arguments.words
    if named is None:
        return None
    if named != "auto":
        rule = "--resume chooses the run, and a run keeps its recipe"
        if wrong := [word for word in words if word.startswith(("recipe=", *_NAMING))]:
            raise RecipeError(Problem(word, None, rule, "leave it out") for word in wrong)
        return run_place("--resume", named), words
    if any(word.startswith("recipe=") for word in words):
        wanted = composed(arguments).recipe
        folder = matching(wanted, say)
        return folder and (folder, wanted)
    names = [word.partition("=")[2] for word in words if word.startswith(("run=", "run.name="))]
    root = root_of(words)
    folder = root / names[0] if names else next(unfinished(root), None)
    if folder is None or not folder.exists():
        fix = "resnet-train --resume auto mild data=PATH   starts one"
        rule = f"there is no run {folder}" if folder else f"there is no unfinished run in {root}"
        raise RecipeError.of("--resume", "auto", rule, fix)
    return folder, [word for word in words if not word.startswith(_NAMING)]


def root_of(words: Sequence[str]) -> Path:
    """Return the folder of all runs: run.root among the words, or its default."""
    root = next((word.partition("=")[2] for word in words if word.startswith("run.root=")), None)
    return typed_path("run.root", root) if root else ROOT
