"""`resnet-train`: train a run, check it, or print its recipe."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base.errors import ExitCode, Hint, RecipeError
from resnet_recipes.base.text import format_clock, wrap_text
from resnet_recipes.command_line.arguments import Arguments, list_typed_words
from resnet_recipes.command_line.printing import get_line_width, say
from resnet_recipes.command_line.recipe_arguments import compose_recipe, generate_demo, plan_command
from resnet_recipes.command_line.run_arguments import find_resumed, find_run_root
from resnet_recipes.command_line.usage import RECIPES, Scope, Usage
from resnet_recipes.jobs.ranks import external_launcher
from resnet_recipes.jobs.ranks.group import make_group
from resnet_recipes.run_folder import CONFIG
from resnet_recipes.run_folder.lock import LockedFolder

if TYPE_CHECKING:
    from resnet_recipes.planning.plan import Plan
    from resnet_recipes.recipe.compose import ComposedRecipe

USAGE = Usage(
    "resnet-train NAME data=/path/to/images [key=value ...]",
    "train an image classifier with a recipe",
    "resnet-train hot data=/data/imagenet epochs=180 '~methods.sam'",
    {
        "--list": "list recipes",
        "--describe NAME": "print a recipe with the sources of its values",
        "--dry-run": "print the plan; start nothing",
        "--verbose": "print the full plan and, in the summary, all times",
        "--no-plan": "do not print the plan; with --dry-run, only check",
        "--check": "smoke test: decode images for up to a minute, train the last two steps, "
        "evaluate and save once, then delete the run",
        "--cfg": "print the complete recipe as YAML",
        "--resume RUN": "resume RUN: a run folder, a name in ./runs, or `last`. `auto` resumes the "
        "unfinished run with these settings, or starts a new one",
        "--extend RUN": "train RUN for a different number of epochs, from its stable phase "
        "(schedule=wsd only): --extend RUN epochs=60",
        "-m": "train every combination of several values: recipe=mild,medium seed=1,2,3. "
        "epochs=curve means 22.5,30,54,60,72,90, the durations of the MosaicML curves",
        "--parallel N": "with -m: train N runs at a time, each on one GPU or part of the cores",
    }
    | RECIPES
    | {
        "--json": "with --list or --dry-run: print JSON",
        "--version": "print the version",
        "--completion SHELL": "print a completion script for bash, zsh or fish",
    },
    """\
Settings are key=value, in any order:
  data=PATH  epochs=N           images, duration
  ssr=R                         scale the duration of the recipe by R
  budget=2h                     as many epochs as fit; '$20' needs launch.price
  lr=  wd=  bs=                 learning rate, weight decay, global batch size
  gpus=  workers=               GPUs, loader workers per GPU
  seed=N  run=NAME              seed of the random numbers, name of the run
  optimizer=lamb schedule=step  use another optimizer, another schedule
  optimizer.momentum=0.9        change any setting (--cfg prints all)
  'methods.mixup={}'            turn a method on
  methods.mixup.alpha=0.3       turn it on, with another value
  '~methods.ema'                turn it off

Under another launcher:
  torchrun --nproc-per-node=8 -m resnet_recipes NAME data=PATH
  srun --ntasks-per-node=8 resnet-train NAME data=PATH

Exit codes: 0 done; 1 failed while running; 2 wrong command or recipe; 3 data or
machine not ready; 75 interrupted; 130 stopped by Ctrl-C. After 75 and 130,
--resume continues the run.

Other commands (cp, compare, convert, doctor ...): resnet-recipes --help""",
    settings=Scope.RECIPE,
)


def check(arguments: Arguments) -> None:
    """Raise RecipeError if --check is used with a run that exists, or under another launcher."""
    if "--check" not in arguments:
        return
    if "--resume" in arguments:
        raise RecipeError.of("--check", None, "tries one new run", Hint("remove --resume"))
    if by := external_launcher.find_launcher():
        clause = f"starts the run itself and cannot run under {by}"
        raise RecipeError.of("--check", None, clause)


def run(arguments: Arguments) -> int:
    """Train with our launcher, wait for the end of the run, and return the exit code."""
    from resnet_recipes.recipe import frozen_recipe

    if "--cfg" in arguments:
        recipe = compose_recipe(arguments, needs_data=False).recipe
        print(frozen_recipe.freeze(recipe), end="")
        return ExitCode.DONE
    if "--check" in arguments:
        return _check(arguments)
    from resnet_recipes.jobs.ranks import launcher

    locked_folder = prepare_run(arguments)
    if locked_folder is None:
        return ExitCode.DONE
    group = make_group(frozen_recipe.read(locked_folder.path / CONFIG).launch)
    return launcher.start(locked_folder, group, say, "--verbose" in arguments).code


def prepare_run(arguments: Arguments) -> LockedFolder | None:
    """Return the folder of the run to start or resume; it is created after all checks.

    None if the run is finished.
    """
    from resnet_recipes.commands.plan import format_plan
    from resnet_recipes.jobs import new_run
    from resnet_recipes.jobs.checks import check_validation_images
    from resnet_recipes.jobs.resume import continue_run

    if folder := external_launcher.find_restarted_run(find_run_root(arguments.positional)):
        return continue_run(folder, [], say)
    reasons = list[str]()  # reasons for a new run, printed after its checks
    if resumed := find_resumed(arguments, reasons.append):
        return continue_run(*resumed, say)
    result = compose_recipe(arguments)
    folder = external_launcher.find_restarted_run(
        Path(result.recipe.run.root)
    )  # a recipe may set run.root
    if folder:
        return continue_run(folder, [], say)
    plan = _plan_new_run(result, arguments)
    check_validation_images(plan)
    locked_folder = new_run.create(plan, list_typed_words())
    if "--no-plan" not in arguments:
        say(*format_plan(plan, str(locked_folder.path), full="--verbose" in arguments))
    for reason in reasons:
        say(reason)
    return locked_folder


def _plan_new_run(result: "ComposedRecipe", arguments: Arguments) -> "Plan":
    """Return the plan of a new run, after generating the demo images if it reads them."""
    from resnet_recipes.jobs.machine.local_plan import resolve_plan

    plan = plan_command(result, arguments)
    if generate_demo(result.recipe):
        plan = plan_command(result, arguments)
    return resolve_plan(plan, say)


def _check(arguments: Arguments) -> int:
    """Print the plan, train the last steps, evaluate and save, and report the result."""
    from resnet_recipes.commands.plan import format_plan
    from resnet_recipes.jobs.checks import TRIED_STEPS, try_run

    result = compose_recipe(arguments)
    start = time.monotonic()
    plan = _plan_new_run(result, arguments)
    if "--no-plan" not in arguments:
        say(*format_plan(plan))
    try_run(plan, say)
    steps = min(TRIED_STEPS, plan.total_steps)
    text = (
        f"checked in {format_clock(time.monotonic() - start)}: the last {steps} of "
        f"{plan.total_steps:,} steps, an evaluation and a checkpoint; the run was deleted. "
        "The same command without --check trains."
    )
    print("\n".join(wrap_text(text, get_line_width())))
    return ExitCode.DONE
