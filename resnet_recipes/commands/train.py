"""`resnet-train`: from the words of a command to a run."""

import os
import sys
from pathlib import Path

from resnet_recipes import api
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.composed import composed
from resnet_recipes.commands.plan import lines
from resnet_recipes.commands.progress import say
from resnet_recipes.commands.resume import root_of, to_resume
from resnet_recipes.jobs import external, launcher
from resnet_recipes.jobs.fit import fitted
from resnet_recipes.jobs.group import group_of
from resnet_recipes.jobs.rank import VERBOSE
from resnet_recipes.jobs.resume import continued
from resnet_recipes.recipe import frozen
from resnet_recipes.recipe.compose import Composed
from resnet_recipes.run_folder.names import CONFIG

#: The environment of a run whose sweep has printed the plan.
PLANNED = "RESNET_RECIPES_PLANNED"


def run(arguments: Arguments) -> int:
    """Train with our own launcher, wait until the run has ended, and return the exit code."""
    folder = prepared(arguments)
    if folder is None:
        return 0
    return launcher.start(folder, group_of(frozen.read(folder / CONFIG).launch), say).code


def prepared(arguments: Arguments) -> Path | None:
    """Return the folder of the run to start or resume, created after all checks have passed.

    None if it is done.
    """
    if "--verbose" in arguments:
        os.environ[VERBOSE] = "1"
    if folder := external.restarted_run(root_of(arguments.words)):
        return continued(folder, [], say)
    if found := to_resume(arguments):
        return continued(*found, say)
    wanted = composed(arguments)
    folder = external.restarted_run(Path(wanted.recipe.run.root))  # which a recipe may set
    return continued(folder, [], say) if folder else _new_run(wanted)


def _new_run(wanted: Composed) -> Path:
    """Create the folder of a new run, print its plan, and return the folder."""
    ranks = external.ranks() or group_of(wanted.recipe.launch).ranks
    wanted, plan = fitted(wanted, api.plan(wanted, ranks, tell=say), say)
    folder = api.prepare(wanted, plan, ["resnet-train", *sys.argv[1:]])
    if PLANNED not in os.environ:
        for line in lines(wanted, plan, str(folder), full=VERBOSE in os.environ):
            say(line)
    return folder
