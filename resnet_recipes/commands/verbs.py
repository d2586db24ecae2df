"""The verbs of `resnet-recipes`: which there are, and what they do."""

from collections.abc import Callable, Sequence
from difflib import get_close_matches

from resnet_recipes import __version__
from resnet_recipes.errors import Problem, RecipeError

HELP = """\
resnet-recipes VERB ...

  ls                     the recipes that there are
  show NAME              one recipe: its file, with the source of every value
  cp NAME FILE           start a recipe of your own (--full: a complete copy)
  diff A B               settings that differ between two recipes or runs
  validate [FILE ...]    check recipe files (default: all in ./recipes)
  plan NAME [key=value]  everything that a run would do, without starting it
  methods [NAME]         the speed-up methods, or one with its settings
  slurm NAME [key=value] a Slurm script that goes on until the run is done
  convert SRC DST        class folders to .beton files for FFCV; --dry-run only
                         predicts; max_resolution=500 jpeg_quality=90 and more
  doctor [data PATH | ffcv | gpu | run]
                         what must be put right before a run, and how; --json
                         data: --no-images  --fix-val MAP [--synsets NAMES]

To train: resnet-train recipe=NAME data=/path/to/images
"""


def run(argv: Sequence[str]) -> int:
    """Run one verb and return its exit code."""
    if not argv or argv[0] == "help" or {"--help", "-h"} & set(argv):
        print(HELP, end="")
        return 0
    if argv[0] == "--version":
        print(f"resnet-recipes {__version__}")
        return 0
    return _verb(argv[0])(argv[1:])


def _verb(name: str) -> Callable[[Sequence[str]], int]:
    """Return what a verb runs; nothing else of the program is imported for it."""
    if name == "ls":
        from resnet_recipes.commands.ls import run as verb
    elif name == "show":
        from resnet_recipes.commands.show import run as verb
    elif name == "cp":
        from resnet_recipes.commands.cp import run as verb
    elif name == "diff":
        from resnet_recipes.commands.diff import run as verb
    elif name == "validate":
        from resnet_recipes.commands.validate import run as verb
    elif name == "plan":
        from resnet_recipes.commands.train import dry_run as verb
    elif name == "methods":
        from resnet_recipes.commands.methods import run as verb
    elif name == "slurm":
        from resnet_recipes.commands.slurm import run as verb
    elif name == "convert":
        from resnet_recipes.commands.convert import run as verb
    elif name == "doctor":
        from resnet_recipes.commands.doctor import run as verb
    else:
        known = ("ls", "show", "cp", "diff", "validate", "plan", "methods", "slurm", "convert", "doctor")
        near = get_close_matches(name, known, n=1)
        meant = f"; did you mean {near[0]} ?" if near else ""
        raise RecipeError([Problem(name, None, f"is no verb{meant}", f"verbs: {', '.join(known)}")])
    return verb
