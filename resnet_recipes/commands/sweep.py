"""`resnet-train -m`: every combination of several values, a run each."""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.composed import composed
from resnet_recipes.errors import Problem, RecipeError
from resnet_recipes.report.text import clock_time

if TYPE_CHECKING:
    from resnet_recipes.composing.compose import Composed


def run(arguments: Arguments, say: Callable[[str], None]) -> int:
    """Check every point, then train them; with --dry-run only list them. The same command continues a sweep."""
    from resnet_recipes.composing.sweep import points
    from resnet_recipes.data.cores import cores
    from resnet_recipes.launch import external, gpus
    from resnet_recipes.launch.sweep import Sweep, slots

    words = [word for word in arguments.words if word.startswith(("run=", "run.name="))]
    problems = [Problem(word, None, "names one run; a sweep names its own", "leave it out") for word in words]
    if "--resume" in arguments:
        problems.append(Problem("--resume", None, "is not used with -m: the same command continues a sweep",
                                "leave it out"))
    if by := external.launcher(arguments.words):
        problems.append(Problem("-m", None, f"starts each run itself, and cannot be started by {by}"))
    found, parallel = gpus.count(), arguments.flags.get("--parallel", "1")
    if not (parallel.isdecimal() and 1 <= int(parallel) <= (found or cores())):
        rule = f"must be from 1 to {found or cores()}, the {'GPUs' if found else 'cores'} of this machine"
        problems.append(Problem("--parallel", parallel, rule))
    if problems:
        raise RecipeError(problems)
    runs = _runs(points(arguments.words), arguments)
    if "--dry-run" in arguments:
        print("\n".join(_outline(runs, int(parallel))))
        return 0
    root = Path(next(iter(runs.values()))[0].recipe.run.root)
    folder = ["--recipes", arguments.flags["--recipes"]] if "--recipes" in arguments else []
    one = ["launch.gpus=1"] if int(parallel) > 1 and found else []
    named = {name: [*words, *one, *folder] for name, (_, words) in runs.items()}
    return Sweep(root, named, say, slots(int(parallel), found, cores())).train()


def _outline(runs: dict[str, tuple["Composed", list[str]]], parallel: int) -> Iterator[str]:
    """Yield how many runs there are, how long they take and what they cost, as far as this machine was measured."""
    from resnet_recipes.commands import estimate

    order = "one after the other" if parallel == 1 else f"{parallel} at a time"
    yield f"{len(runs)} run{'' if len(runs) == 1 else 's'}, {order}:"
    minutes, money, unknown = 0.0, 0.0, 0
    for name, (point, words) in runs.items():
        made = estimate.plan_of(point) if point.recipe.data.root or point.recipe.data.backend == "synthetic" else None
        known = estimate.known(made) if made else None
        took = ""
        if known:
            result = estimate.of(made, known.speeds)
            total = result.minutes + result.evaluation_minutes
            minutes, money = minutes + total, money + result.cost(point.recipe.launch.price or 0.0)
            took = f"  {clock_time(60 * total)}"
        unknown += not known
        yield f"  {name}{took}\n    {' '.join(words)}"
    if minutes:
        cost = f", {money:,.2f} at launch.price" if money else ""
        yield f"in all {clock_time(60 * minutes / parallel)}{cost}, as this machine was measured"
    if unknown:
        which = "of these runs" if unknown == len(runs) else f"of {unknown} of them"
        yield f"the time {which} is not known: `resnet-recipes estimate` with their words measures it"


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
