"""`resnet-recipes slurm NAME [key=value ...]`: print a script for sbatch, of a run or a sweep."""

import re
from collections.abc import Iterator, Sequence

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.pages import PAGES
from resnet_recipes.commands.sweep import named
from resnet_recipes.launch.slurm import SHORTEST, Allocation, array, script, seconds
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.sections import LaunchConfig
from resnet_recipes.recipe.sweep import points

#: Settings that the script fills in.
_TAKEN = ("run=", "run.name=")

#: Their stand-in while the recipe is checked.
_STAND_IN = "run.name=run-1"

#: GPUs of a node with `gpus=auto`.
USUAL = 8


def run(arguments: Arguments) -> int:
    """Check recipe and settings, and print the script for `nodes=` nodes with `gpus=` GPUs each."""
    words = [
        word.removeprefix("recipe=") if i == 0 else word for i, word in enumerate(arguments.words)
    ]
    if not words or "=" in words[0]:
        raise RecipeError([Problem("slurm", None, "needs a recipe", PAGES["slurm"].example)])
    recipe, *changes = words
    nodes = next((word for word in reversed(changes) if word.startswith("nodes=")), "nodes=1")
    changes = [word for word in changes if not word.startswith("nodes=")]
    time = arguments.flags.get("--time", "24:00:00")
    if problems := [*_problems(nodes, changes, time), *_array_problems(arguments)]:
        raise RecipeError(problems)
    count = int(nodes.removeprefix("nodes="))
    if "-m" in arguments:
        print(_array([f"recipe={recipe}", *changes], count, time, arguments), end="")
        return 0
    launch = compose(recipe, [*changes, _STAND_IN]).recipe.launch
    print(script(recipe, _kept(changes), _allocation(launch, count), time), end="")
    return 0


def _array(words: list[str], nodes: int, time: str, arguments: Arguments) -> str:
    """Return the script of a sweep; its runs have the names that `resnet-train -m` gives them."""
    runs = named(points(words), Arguments(), (_STAND_IN,))
    launch, *others = (point.recipe.launch for point, _ in runs.values())
    if any(other != launch for other in others):
        raise RecipeError(
            [
                Problem(
                    "-m",
                    None,
                    "the jobs of an array must have the same GPUs",
                    "give gpus and launch settings one value each",
                )
            ]
        )
    most = arguments.flags.get("--parallel")
    return array(
        {name: _kept(words) for name, (_, words) in runs.items()},
        _allocation(launch, nodes),
        time,
        int(most) if most else None,
    )


def _allocation(launch: LaunchConfig, nodes: int) -> Allocation:
    gpus = USUAL if launch.gpus == "auto" else int(launch.gpus)
    return Allocation(nodes, gpus, launch.device == "cpu")


def _kept(words: Sequence[str]) -> list[str]:
    """Return the words that the script does not write itself."""
    return [word for word in words if not word.startswith(("gpus=", "launch.gpus="))]


def _array_problems(arguments: Arguments) -> Iterator[Problem]:
    """Yield what is wrong with --parallel."""
    most = arguments.flags.get("--parallel", "1")
    if "--parallel" in arguments and "-m" not in arguments:
        yield Problem("--parallel", most, "is only for a sweep", "add -m")
    elif not re.fullmatch("[1-9][0-9]{0,3}", most):
        yield Problem("--parallel", most, "must be a number of jobs, from 1 to 9999")


def _problems(nodes: str, changes: Sequence[str], time: str) -> list[Problem]:
    """Return what is wrong with nodes, time limit and settings that the script itself decides."""
    rule = "is set by the script, which names the run"
    found = [
        Problem(word, None, rule, "leave it out") for word in changes if word.startswith(_TAKEN)
    ]
    if nodes != "nodes=1":
        rule = "is only for one node: srun does not start its tasks again"
        found += [
            Problem(word, None, rule, "leave it out")
            for word in changes
            if word.startswith("launch.max_restarts=")
        ]
    if not re.fullmatch("nodes=[1-9][0-9]{0,3}", nodes):
        found.append(Problem(nodes, None, "must be a number of nodes, from 1 to 9999", "nodes=2"))
    if not (length := seconds(time)):
        rule = "must be a time limit in one of Slurm's forms"
        found.append(Problem("--time", time, rule, "--time 24:00:00, or --time 2-00:00:00"))
    elif length < SHORTEST:
        rule = (
            f"must be at least {SHORTEST // 60} minutes: the run saves 3 minutes before the limit"
        )
        found.append(Problem("--time", time, rule, "--time 1:00:00"))
    return found
