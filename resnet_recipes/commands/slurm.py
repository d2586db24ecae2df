"""`resnet-recipes slurm NAME [key=value]`: print a script for sbatch."""

from collections.abc import Sequence

from resnet_recipes.commands.arguments import Usage, split
from resnet_recipes.errors import Problem, RecipeError

USAGE = Usage("resnet-recipes slurm NAME [key=value ...]",
              "print a Slurm script that is requeued until the run is done",
              "resnet-recipes slurm hot data=/data/imagenet launch.nodes=2 > job.sh",
              {"--time HH:MM:SS": "limit of one job (default 24:00:00)"})

#: Settings that the script fills in.
_TAKEN = ("run=", "run.name=", "launch.rdzv=")


def run(argv: Sequence[str]) -> int:
    """Check recipe and settings, and print the script; nodes and GPUs are those of `launch.nodes` and `gpus`."""
    from resnet_recipes.composing.compose import compose
    from resnet_recipes.launch.slurm import script, title

    arguments = split(argv, USAGE)
    words = [word.removeprefix("recipe=") if i == 0 else word for i, word in enumerate(arguments.words)]
    if not words or "=" in words[0]:
        raise RecipeError([Problem("slurm", None, "needs a recipe", USAGE.example)])
    recipe, *changes = words
    time = arguments.flags.get("--time", "24:00:00")
    if problems := _problems(changes, time):
        raise RecipeError(problems)
    launch = compose(recipe, [*changes, f"run.name={title(recipe)}-1", "launch.rdzv=node:20000"]).recipe.launch
    fewest, nodes = launch.fewest_and_most_nodes
    if fewest < nodes:
        rule = "must be one number: a Slurm job has all its nodes or none"
        raise RecipeError([Problem("launch.nodes", launch.nodes, rule, f"launch.nodes={nodes}")])
    kept = [word for word in changes if not word.startswith(("gpus=", "launch.gpus=", "launch.nodes="))]
    print(script(recipe, kept, launch, time), end="")
    return 0


def _problems(changes: Sequence[str], time: str) -> list[Problem]:
    """Return what is wrong with what the script itself decides."""
    from resnet_recipes.launch.slurm import SHORTEST, seconds

    rule = "is set by the script: the run has the job's id, and its nodes meet on the first of them"
    found = [Problem(word, None, rule, "leave it out") for word in changes if word.startswith(_TAKEN)]
    if not (length := seconds(time)):
        rule = "must be a time limit as Slurm writes it"
        found.append(Problem("--time", time, rule, "--time 24:00:00, or --time 2-00:00:00"))
    elif length < SHORTEST:
        rule = f"must be at least {SHORTEST // 60} minutes: the run saves 3 minutes before the limit"
        found.append(Problem("--time", time, rule, "--time 1:00:00"))
    return found
