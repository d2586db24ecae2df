"""`resnet-train`: from the words of a command to a run."""

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes import __version__
from resnet_recipes.commands.arguments import RECIPES, Arguments, Usage, split
from resnet_recipes.commands.composed import composed
from resnet_recipes.commands.progress import say

if TYPE_CHECKING:
    from resnet_recipes.recipe.compose import Composed

USAGE = Usage(
    "resnet-train recipe=NAME data=/path/to/images [key=value ...]",
    "train a ResNet by a recipe",
    "resnet-train recipe=hot data=/data/imagenet epochs=180 ~methods.sam",
    {
        "--list": "list recipes",
        "--describe NAME": "show a recipe, with the source of every value",
        "--dry-run": "print the plan without starting (--json: as JSON)",
        "--cfg": "print the complete recipe as YAML",
        "--resume RUN": "continue a run; RUN is its folder, or auto for the unfinished run with "
        "these settings, or "
        "else a new one",
        "-m": "run every combination of several values: recipe=mild,medium seed=1,2,3 "
        "epochs=curve (22.5, 30, 54, 60, "
        "72 and 90)",
        "--parallel N": "with -m: N runs at a time, one GPU each",
    }
    | RECIPES
    | {
        "--json": "with --list or --dry-run: print JSON",
        "--version": "print the version",
        "--completion SHELL": "print a completion script for bash, zsh or fish",
    },
    """\
Settings are key=value, in any order:
  data=PATH  epochs=N  ssr=R    images; length in epochs, or as a multiple of 90
  lr=  wd=  bs=  seed=          learning rate, weight decay, global batch size
  gpus=  workers=  run=NAME     GPUs, loader processes per GPU, name of the run
  optimizer.momentum=0.9        any setting of the recipe (--cfg prints all)
  methods.mixup={}              turn a method on, with its defaults
  methods.mixup.alpha=0.3       turn it on with another value
  ~methods.ema                  turn it off

Under another launcher:
  torchrun --nproc-per-node=8 -m resnet_recipes recipe=NAME data=PATH
  srun --ntasks-per-node=8 resnet-train recipe=NAME data=PATH

Exit codes: 0 done; 1 training failed; 2 wrong command or recipe; 3 data or
machine not ready; 75 stopped from outside and saved; 130 Ctrl-C and saved.

Other commands (copy, compare, convert, check ...): resnet-recipes --help""",
)


def run(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if not argv or {"--help", "-h"} & set(argv):
        print(USAGE.page(), end="")
        return 0
    arguments = split(argv, USAGE)
    folder = arguments.recipes
    if "--version" in arguments:
        print(f"resnet-recipes {__version__}")
    elif "--completion" in arguments:
        from resnet_recipes.commands import completion

        print(completion.script(arguments.flags["--completion"], USAGE.values), end="")
    elif "--list" in arguments:
        from resnet_recipes.commands.ls import list_recipes

        list_recipes(folder, as_json="--json" in arguments)
    elif "--describe" in arguments:
        from resnet_recipes.commands.show import describe

        describe(arguments.flags["--describe"], folder)
    elif "--cfg" in arguments:
        from resnet_recipes.recipe.frozen import freeze

        print(freeze(composed(arguments, needs_data=False).recipe), end="")
    elif "-m" in arguments:
        from resnet_recipes.commands import sweep

        return sweep.run(arguments)
    elif "--dry-run" in arguments:
        from resnet_recipes.commands.plan import show

        show(composed(arguments, needs_data=False), as_json="--json" in arguments)
    else:
        from resnet_recipes.launch import external

        prepare = partial(prepared, arguments)
        return external.join(argv, prepare) if external.launcher(argv) else _launched(prepare())
    return 0


def prepared(arguments: Arguments) -> Path | None:
    """Return the folder of the run to start or resume, created after all checks have passed; None if it is done."""
    from resnet_recipes.commands import resume
    from resnet_recipes.launch import external

    run, words = arguments.flags.get("--resume"), arguments.words
    if folder := external.restarted_run(resume.root_of(words)):
        return resume.continued(folder, [])
    has_recipe = any(word.startswith("recipe=") for word in words)
    if run is not None and not (run == "auto" and has_recipe):
        return resume.named(run, words)
    wanted = composed(arguments)
    if run == "auto" and (folder := resume.matching(wanted.recipe)):
        return resume.continued(folder, wanted.recipe)
    return _new_run(wanted)


def _new_run(wanted: "Composed") -> Path:
    """Create the folder of a new run, print its plan, and return the folder."""
    from resnet_recipes import data
    from resnet_recipes.commands import estimate, run_folder
    from resnet_recipes.commands.plan import lines, with_start
    from resnet_recipes.launch import external
    from resnet_recipes.launch.group import group_of
    from resnet_recipes.planning.plan import make_plan

    ranks = external.ranks() or group_of(wanted.recipe.launch).ranks
    plan = with_start(
        make_plan(wanted.recipe, data.measure(wanted.recipe.data, with_cost=True, tell=say), ranks)
    )
    folder = run_folder.create(wanted, plan, ["resnet-train", *sys.argv[1:]])
    estimate.keep(plan, folder)
    for line in lines(wanted, plan, str(folder)):
        say(line)
    return folder


def _launched(folder: Path | None) -> int:
    """Train in a folder with our own launcher, wait until the run has ended, and return the exit code."""
    from resnet_recipes.launch import start
    from resnet_recipes.launch.group import command, group_of
    from resnet_recipes.recipe import frozen

    if folder is None:
        return 0
    group = group_of(frozen.read(folder / "config.yaml").launch)
    if group.by_torchrun:
        say(f"  command    {shlex.join(command(folder, group))}")
    return start.start(folder, group, say).code
