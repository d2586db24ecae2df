"""`resnet-recipes slurm NAME [key=value ...]`: print a script for sbatch, for one run or a sweep."""

import re
from collections.abc import Iterator, Sequence

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.pages import PAGES
from resnet_recipes.commands.sweep import named
from resnet_recipes.launch.slurm import SHORTEST, array, script, seconds
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.sections import LaunchConfig
from resnet_recipes.recipe.sweep import points

#: Settings that the script fills in.
_TAKEN = ("run=", "run.name=", "launch.rdzv=")

#: Their stand-ins while the recipe is checked.
_STAND_INS = ("run.name=run-1", "launch.rdzv=node:20000")


def run(arguments: Arguments) -> int:
    """Check recipe and settings, and print the script; nodes and GPUs are those of `launch.nodes` and `gpus`."""
    words = [
        word.removeprefix("recipe=") if i == 0 else word for i, word in enumerate(arguments.words)
    ]
    if not words or "=" in words[0]:
        raise RecipeError([Problem("slurm", None, "needs a recipe", PAGES["slurm"].example)])
    recipe, *changes = words
    time = arguments.flags.get("--time", "24:00:00")
    if problems := [*_problems(changes, time), *_array_problems(arguments)]:
        raise RecipeError(problems)
    if "-m" in arguments:
        print(_array([f"recipe={recipe}", *changes], time, arguments), end="")
        return 0
    launch = compose(recipe, [*changes, *_STAND_INS]).recipe.launch
    _check_nodes(launch)
    print(script(recipe, _kept(changes), launch, time), end="")
    return 0


def _array(words: list[str], time: str, arguments: Arguments) -> str:
    """Return the script of a sweep; its runs have the names that `resnet-train -m` gives them."""
    runs = named(points(words), Arguments(), _STAND_INS)
    launch, *others = (point.recipe.launch for point, _ in runs.values())
    if any(other != launch for other in others):
        raise RecipeError(
            [
                Problem(
                    "-m",
                    None,
                    "the jobs of an array must have the same nodes and GPUs",
                    "give gpus and launch settings one value each",
                )
            ]
        )
    _check_nodes(launch)
    most = arguments.flags.get("--parallel")
    return array(
        {name: _kept(words) for name, (_, words) in runs.items()},
        launch,
        time,
        int(most) if most else None,
    )


def _check_nodes(launch: LaunchConfig) -> None:
    fewest, nodes = launch.fewest_and_most_nodes
    if fewest < nodes:
        rule = "must be one number: a Slurm job gets all its nodes or none"
        raise RecipeError([Problem("launch.nodes", launch.nodes, rule, f"launch.nodes={nodes}")])


def _kept(words: Sequence[str]) -> list[str]:
    """Return the words that the script does not write itself."""
    return [
        word for word in words if not word.startswith(("gpus=", "launch.gpus=", "launch.nodes="))
    ]


def _array_problems(arguments: Arguments) -> Iterator[Problem]:
    """Yield what is wrong with --parallel."""
    most = arguments.flags.get("--parallel", "1")
    if "--parallel" in arguments and "-m" not in arguments:
        yield Problem("--parallel", most, "is only for a sweep", "add -m")
    elif not re.fullmatch("[1-9][0-9]{0,3}", most):
        yield Problem("--parallel", most, "must be a number of jobs, from 1 to 9999")


def _problems(changes: Sequence[str], time: str) -> list[Problem]:
    """Return what is wrong with the time limit, and with settings that the script itself decides."""
    rule = "is set by the script, which names the run and lets the nodes meet on the first one"
    found = [
        Problem(word, None, rule, "leave it out") for word in changes if word.startswith(_TAKEN)
    ]
    if not (length := seconds(time)):
        rule = "must be a time limit in one of Slurm's forms"
        found.append(Problem("--time", time, rule, "--time 24:00:00, or --time 2-00:00:00"))
    elif length < SHORTEST:
        rule = (
            f"must be at least {SHORTEST // 60} minutes: the run saves 3 minutes before the limit"
        )
        found.append(Problem("--time", time, rule, "--time 1:00:00"))
    return found
