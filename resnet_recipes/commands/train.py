"""`resnet-train`: from the words of a command to a run."""

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes import __version__
from resnet_recipes.commands.arguments import Arguments, split
from resnet_recipes.errors import Problem, RecipeError

if TYPE_CHECKING:
    from resnet_recipes.composing.compose import Composed
    from resnet_recipes.plan import Plan

FLAGS = {
    "--dry-run": "", "--cfg": "", "--list": "", "--describe": "NAME", "--resume": "RUN", "--recipes": "DIR", "--json": "",
    "--help": "", "-h": "", "--version": "",
}

HELP = """\
resnet-train recipe=NAME data=/path/to/images [key=value ...]

  resnet-train recipe=mild data=/data/imagenet              train
  resnet-train recipe=mild data=/data/imagenet --dry-run    only tell the plan
  resnet-train recipe=hot data=... epochs=180 ~methods.sam  with changes
  resnet-train --resume runs/NAME                           go on after a stop

Settings, as key=value, in any order:
  data=PATH  epochs=N  ssr=R (times 90 epochs)  lr=  wd=  bs= (global)
  gpus=  seed=  run=NAME  workers=
  optimizer.lr=1.0  methods.mixup.alpha=0.3    any setting (--cfg shows all)
  methods.mixup={}  ~methods.ema               switch a method on or off

Flags:
  --list              the recipes that there are
  --describe NAME     one of them, with the source of every value
  --dry-run           the plan, without starting (--json: for programs)
  --cfg               the complete recipe as YAML
  --resume RUN|auto   go on with a run; auto: the one of run=NAME, or the newest
                      unfinished one, or else a new one
  --recipes DIR       your own recipes (default ./recipes)
  --version  --help   more verbs: resnet-recipes --help

Under your own launcher: torchrun --nproc-per-node=8 -m resnet_recipes ...
                         srun --ntasks-per-node=8 resnet-train ...

Exit codes: 0 done, 1 training failed, 2 wrong command or recipe, 3 data or
machine not ready, 75 stopped from outside and saved, 130 Ctrl-C and saved.
"""


def run(argv: Sequence[str]) -> int:
    """Do what the command says and return its exit code."""
    arguments = split(argv, FLAGS, "resnet-train recipe=mild")
    folder = Path(arguments.flags["--recipes"]) if "--recipes" in arguments else None
    if "--help" in arguments or "-h" in arguments or not argv:
        print(HELP, end="")
    elif "--version" in arguments:
        print(f"resnet-recipes {__version__}")
    elif "--list" in arguments:
        from resnet_recipes.commands.ls import list_recipes
        list_recipes(folder, as_json="--json" in arguments)
    elif "--describe" in arguments:
        from resnet_recipes.commands.show import describe
        describe(arguments.flags["--describe"], folder)
    elif "--cfg" in arguments:
        from resnet_recipes.composing.frozen import freeze
        print(freeze(_composed(arguments, folder, needs_data=False).recipe), end="")
    elif "--dry-run" in arguments:
        _show_plan(_composed(arguments, folder, needs_data=False), as_json="--json" in arguments)
    else:
        from resnet_recipes.launch import external
        prepare = partial(prepared, arguments, folder)
        return external.join(argv, prepare) if external.launcher(argv) else _launched(prepare())
    return 0


def dry_run(argv: Sequence[str]) -> int:
    """Run `resnet-recipes plan NAME [key=value ...]`: the same as --dry-run."""
    words = [f"recipe={argv[0]}", *argv[1:]] if argv and "=" not in argv[0] and not argv[0].startswith("-") else argv
    return run(["--dry-run", *words])


def prepared(arguments: Arguments, recipes: Path | None) -> Path | None:
    """Return the folder of the run to train, new or begun; None if it is done. Nothing is made before all checks have passed."""
    from resnet_recipes.commands import resume
    from resnet_recipes.launch import external

    if folder := external.begun(resume.root_of(arguments.words)):
        return resume.go_on(folder, [])
    if "--resume" in arguments and (found := resume.find(arguments.flags["--resume"], arguments.words)):
        return resume.go_on(*found)
    return _begun(_composed(arguments, recipes))


def _begun(composed: "Composed") -> Path:
    """Make the folder of a new run, tell its plan, and return it."""
    from resnet_recipes import data, plan
    from resnet_recipes.commands import run_folder
    from resnet_recipes.launch import external
    from resnet_recipes.launch.group import group_of

    ranks = external.ranks() or group_of(composed.recipe.launch).ranks
    made = plan.of(composed.recipe, data.measure(composed.recipe.data, with_cost=True), ranks)
    folder = run_folder.create(composed, made, ["resnet-train", *sys.argv[1:]])
    for line in _lines(composed, made, str(folder)):
        say(line)
    return folder


def _launched(folder: Path | None) -> int:
    """Train in a folder, by processes of our own, and stay until the run has ended; return the exit code."""
    from resnet_recipes.composing import frozen
    from resnet_recipes.launch import start
    from resnet_recipes.launch.group import command, group_of

    if folder is None:
        return 0
    group = group_of(frozen.read(folder / "config.yaml").launch)
    if group.by_torchrun:
        say(f"  command    {shlex.join(command(folder, group))}")
    return start.start(folder, group, say).code


def say(line: str) -> None:
    """Show a line to the user; stdout is for results."""
    print(line, file=sys.stderr, flush=True)


def _composed(arguments: Arguments, folder: Path | None, needs_data: bool = True) -> "Composed":
    from resnet_recipes.composing.library import Library

    names = [word.removeprefix("recipe=") for word in arguments.words if word.startswith("recipe=")]
    changes = [word for word in arguments.words if not word.startswith("recipe=")]
    if len(names) != 1:
        library = Library(folder)
        known = ", ".join(entry.name for entry in library.entries())
        bare = next((word for word in changes if word in library.user or word in library.packaged), None)
        rule = "one run has one recipe" if names else "which one?"
        raise RecipeError([Problem("recipe", " ".join(names) or None, rule, f"recipe={bare}" if bare else f"recipe=NAME, of {known}")])
    Library(folder).chain(names[0])         # a wrong name or a broken file is told at once, before seconds of imports

    from resnet_recipes.composing.compose import compose
    return compose(names[0], changes, folder, needs_data)


def _show_plan(composed: "Composed", as_json: bool) -> None:
    from resnet_recipes import data, plan

    config = composed.recipe.data
    facts = data.measure(config, with_cost=True) if config.root or config.backend == "synthetic" else plan.IMAGENET
    made = plan.of(composed.recipe, facts, _ranks(composed))
    print(json.dumps(made.as_dict(), indent=2) if as_json else "\n".join(_lines(composed, made, None)))


def _ranks(composed: "Composed") -> int:
    """Return the number of ranks; a plan may be made for more GPUs than there are here."""
    from resnet_recipes.launch.group import group_of

    config = composed.recipe.launch
    return int(config.gpus) * config.fewest_and_most_nodes[1] if config.gpus != "auto" else group_of(config).ranks


def _lines(composed: "Composed", made: "Plan", folder: str | None) -> Iterator[str]:
    """Yield what a person wants to know before the first step."""
    from resnet_recipes import outline

    entry = composed.entry
    hides = ", instead of the packaged recipe of this name" if entry.shadows else ""
    head = [("recipe", f"{composed.recipe.name}, {entry.place}{hides}")]
    if composed.overrides:
        head.append(("changed", "  ".join(map(str, composed.overrides))))
    foot = [("run folder", folder)] if folder else []
    yield f"resnet-recipes {__version__}"
    yield from outline.lines([*head, *outline.rows(made), *foot])
