"""`resnet-train -m`: every combination of several values, one run after the other."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.composed import composed
from resnet_recipes.errors import Problem, RecipeError

if TYPE_CHECKING:
    from resnet_recipes.composing.compose import Composed


def run(arguments: Arguments, say: Callable[[str], None]) -> int:
    """Check every point, then train them; with --dry-run only list them. The same command continues a sweep."""
    from resnet_recipes.composing.sweep import points
    from resnet_recipes.launch import external
    from resnet_recipes.launch.sweep import train_all

    words = [word for word in arguments.words if word.startswith(("run=", "run.name="))]
    problems = [Problem(word, None, "names one run; a sweep names its own", "leave it out") for word in words]
    if "--resume" in arguments:
        problems.append(Problem("--resume", None, "is not used with -m: the same command continues a sweep",
                                "leave it out"))
    if by := external.launcher(arguments.words):
        problems.append(Problem("-m", None, f"starts each run itself, and cannot be started by {by}"))
    if problems:
        raise RecipeError(problems)
    runs = _runs(points(arguments.words), arguments)
    if "--dry-run" in arguments:
        print(f"{len(runs)} run{'' if len(runs) == 1 else 's'}, one after the other:")
        for name, (_, words) in runs.items():
            print(f"  {name}\n    {' '.join(words)}")
        return 0
    root = Path(next(iter(runs.values()))[0].recipe.run.root)
    folder = ["--recipes", arguments.flags["--recipes"]] if "--recipes" in arguments else []
    return train_all(root, {name: [*words, *folder] for name, (_, words) in runs.items()}, say)


def _runs(found: list[list[str]], arguments: Arguments) -> dict[str, tuple["Composed", list[str]]]:
    """Return each point's recipe and words by its run's name. Raises RecipeError with the problems of all points."""
    runs: dict[str, tuple[Composed, list[str]]] = {}
    problems: dict[str, Problem] = {}
    swept = {word for words in found for word in words if not all(word in others for others in found)}
    for words in found:
        try:
            point = composed(Arguments(arguments.flags, words), needs_data="--dry-run" not in arguments)
            runs[_name(point, [word for word in words if word in swept])] = point, words
        except RecipeError as error:
            problems |= {str(problem): problem for problem in error.problems}
    if problems:
        raise RecipeError(problems.values())
    return runs


def _name(point: "Composed", swept: list[str]) -> str:
    """Return the run's name: recipe, what differs from the other points, and a digest of what makes the result."""
    from resnet_recipes.composing.frozen import freeze
    from resnet_recipes.config import LaunchConfig, RunConfig

    recipe = replace(point.recipe, run=RunConfig(), launch=LaunchConfig())
    parts = [word.partition("=") for word in swept if not word.startswith("recipe=")]
    said = [re.sub(r"[^A-Za-z0-9.]+", "", f"{key.rpartition('.')[2]}{value}") for key, _, value in parts]
    digest = hashlib.sha256(freeze(recipe).encode()).hexdigest()[:8]
    return "-".join([recipe.name[:40], *filter(None, ["-".join(said)[:60]]), digest])
