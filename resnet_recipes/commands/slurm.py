"""`resnet-recipes slurm NAME [key=value]`: print a script for sbatch."""

from collections.abc import Sequence

from resnet_recipes.commands.arguments import Usage, split
from resnet_recipes.errors import Problem, RecipeError

USAGE = Usage("resnet-recipes slurm NAME [key=value ...]", "print a Slurm script that is requeued until the run is done",
              "resnet-recipes slurm hot data=/data/imagenet launch.nodes=2 > job.sh",
              {"--time HH:MM:SS": "limit of one job (default 24:00:00)"})


def run(argv: Sequence[str]) -> int:
    """Check the recipe and its settings, and print the script; nodes and GPUs are those of `launch.nodes` and `gpus`."""
    from resnet_recipes.composing.compose import compose
    from resnet_recipes.launch.slurm import script

    arguments = split(argv, USAGE)
    words = [word.removeprefix("recipe=") if i == 0 else word for i, word in enumerate(arguments.words)]
    if not words or "=" in words[0]:
        raise RecipeError([Problem("slurm", None, "needs a recipe", USAGE.example)])
    name, *changes = words
    rule = "is set by the script: the run has the job's id, and its nodes meet on the first of them"
    if taken := [Problem(word, None, rule) for word in changes if word.startswith(("run=", "run.name=", "launch.rdzv="))]:
        raise RecipeError(taken)
    launch = compose(name, [*changes, "launch.rdzv=node:20000"]).recipe.launch
    fewest, nodes = launch.fewest_and_most_nodes
    if fewest < nodes:
        raise RecipeError([Problem("launch.nodes", launch.nodes, "must be one number: a job of Slurm has all its nodes, or none")])
    gpus = 8 if launch.gpus == "auto" else int(launch.gpus)
    kept = [word for word in changes if not word.startswith(("gpus=", "launch.gpus=", "launch.nodes="))]
    title = name.rpartition("/")[2].removesuffix(".yaml")
    print(script(title, [f"recipe={name}", *kept], nodes, gpus, arguments.flags.get("--time", "24:00:00")), end="")
    return 0
