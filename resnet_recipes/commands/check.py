"""`resnet-train --check`: try exactly this run in a minute, and keep nothing of it."""

import sys
import time

from resnet_recipes import api
from resnet_recipes.base.errors import ExitCode, RecipeError
from resnet_recipes.base.text import clock_time
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.composed import composed
from resnet_recipes.commands.plan import lines
from resnet_recipes.commands.progress import say
from resnet_recipes.jobs import external
from resnet_recipes.jobs.fit import fitted
from resnet_recipes.jobs.group import group_of
from resnet_recipes.jobs.measure import CHECKED, check


def run(arguments: Arguments) -> int:
    """Print the plan, train the last steps, evaluate, save, and say that the run can be started."""
    if "--resume" in arguments:
        raise RecipeError.of("--check", None, "tries one new run", "leave out --resume")
    if by := external.launcher():
        rule = f"starts the run itself, so it cannot be started by {by}"
        raise RecipeError.of("--check", None, rule)
    wanted, began = composed(arguments), time.monotonic()
    plan = api.plan(wanted, group_of(wanted.recipe.launch).ranks, tell=say)
    wanted, plan = fitted(wanted, plan, say)
    for line in lines(wanted, plan):
        say(line)
    ending = check(wanted, plan, ["resnet-train", *sys.argv[1:]], say)
    if ending.code == ExitCode.DONE:
        steps = min(CHECKED, plan.total_steps)
        print(
            f"checked in {clock_time(time.monotonic() - began)}: the last {steps} of "
            f"{plan.total_steps:,} steps, an evaluation and a checkpoint; nothing was kept. "
            "The same command without --check trains."
        )
    return ending.code
