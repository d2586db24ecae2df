"""`resnet-train`: from the words of a command to a run."""

import sys
from collections.abc import Sequence
from pathlib import Path

from resnet_recipes import api
from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.composed import composed
from resnet_recipes.commands.plan import lines
from resnet_recipes.commands.progress import say
from resnet_recipes.launch import external, start
from resnet_recipes.launch.group import group_of
from resnet_recipes.launch.resume import continued, matching, unfinished
from resnet_recipes.recipe import frozen
from resnet_recipes.recipe.compose import Composed

ROOT = Path("runs")

#: Settings that name a run.
_NAMING = ("run=", "run.name=", "run.root=")


def run(arguments: Arguments) -> int:
    """Train with our own launcher, wait until the run has ended, and return the exit code."""
    folder = prepared(arguments)
    if folder is None:
        return 0
    return start.start(folder, group_of(frozen.read(folder / "config.yaml").launch), say).code


def prepared(arguments: Arguments) -> Path | None:
    """Return the folder of the run to start or resume, created after all checks have passed.

    None if it is done.
    """
    named, words = arguments.flags.get("--resume"), arguments.words
    if folder := external.restarted_run(_root_of(words)):
        return continued(folder, [], say)
    has_recipe = any(word.startswith("recipe=") for word in words)
    if named is not None and not (named == "auto" and has_recipe):
        return _resumed(named, words)
    wanted = composed(arguments)
    if named == "auto" and (folder := matching(wanted.recipe, say)):
        return continued(folder, wanted.recipe, say)
    return _new_run(wanted)


def _new_run(wanted: Composed) -> Path:
    """Create the folder of a new run, print its plan, and return the folder."""
    ranks = external.ranks() or group_of(wanted.recipe.launch).ranks
    plan = api.plan(wanted, ranks, tell=say)
    folder = api.prepare(wanted, plan, ["resnet-train", *sys.argv[1:]])
    for line in lines(wanted, plan, str(folder)):
        say(line)
    return folder


def _resumed(named: str, words: Sequence[str]) -> Path | None:
    """Continue a run, or with `auto` the newest unfinished one, with changed settings.

    Return its folder, or None if it is finished. Raises RecipeError if there is no such run, or if
    a change would make it a different one.
    """
    if named != "auto":
        rule = "--resume chooses the run, and a run keeps its recipe"
        if wrong := [word for word in words if word.startswith(("recipe=", *_NAMING))]:
            raise RecipeError(Problem(word, None, rule, "leave it out") for word in wrong)
        return continued(typed_path("--resume", named), words, say)
    name = next(
        (word.partition("=")[2] for word in words if word.startswith(("run=", "run.name="))), None
    )
    root = _root_of(words)
    folder = root / name if name else next(unfinished(root), None)
    if folder is None:
        fix = "resnet-train recipe=mild data=... starts one"
        raise RecipeError(
            [Problem("--resume", "auto", f"there is no unfinished run in {root}", fix)]
        )
    return continued(folder, [word for word in words if not word.startswith(_NAMING)], say)


def _root_of(words: Sequence[str]) -> Path:
    """Return the folder of all runs: run.root among the words, or its default."""
    root = next((word.partition("=")[2] for word in words if word.startswith("run.root=")), None)
    return typed_path("run.root", root) if root else ROOT
