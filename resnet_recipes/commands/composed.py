"""The recipe that a command's words ask for."""

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base.errors import Fix, Hint, Kind, NotReadyError, Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments
from resnet_recipes.commands.printing import say
from resnet_recipes.recipe.library import Entry, Library
from resnet_recipes.run_folder import CONFIG

if TYPE_CHECKING:
    from resnet_recipes.recipe.compose import Composed


_SWEEP = Hint("resnet-train -m trains several recipes")


def composed(arguments: Arguments, needs_data: bool = True) -> "Composed":
    """Compose the one recipe that the words name, with their changes.

    Raises RecipeError with every problem.
    """
    name, changes = chosen(arguments)
    # imports torch, which takes seconds
    from resnet_recipes.api import with_network
    from resnet_recipes.recipe.compose import compose

    name = name or _best(changes, arguments)
    made = with_network(compose(name, changes, arguments.recipes, needs_data))
    run = made.recipe.run
    folder = Path(run.root, run.extends)
    # what resumes by itself is repeated until the other run is there
    if run.extends and "--resume" not in arguments and not (folder / CONFIG).is_file():
        fix = f"resnet-recipes runs {shlex.quote(run.root)}"
        raise RecipeError.of("run.extends", run.extends, f"there is no run {folder}", fix)
    return made


def _best(changes: Sequence[str], arguments: Arguments) -> str:
    """Return the recipe that makes the most of a budget, and say by which rule."""
    from resnet_recipes.jobs.measure import UNKNOWN
    from resnet_recipes.jobs.offers import find_offers

    found, rule, *_ = find_offers(
        changes, arguments.recipes, Library(arguments.recipes).list_names()
    )
    if not found:
        raise NotReadyError.of("budget", None, UNKNOWN, "resnet-recipes estimate mild data=PATH")
    names = [
        f"{plan.recipe.name}" + (f" ({accuracy.top1:.1f}%, {accuracy.source})" if accuracy else "")
        for plan, _, _, accuracy in found
    ]
    others = f"; next: {', '.join(names[1:3])}" if names[1:] else ""
    say(f"recipe={names[0]}: {rule}{others}")
    return found[0].plan.recipe.name


def _missing(changes: Sequence[str], known: Sequence[str]) -> Iterator[Problem]:
    """Yield that no recipe is named, with the one that suits the images, and what is wrong there.

    Images without validation images are looked at as with data.val_share.
    """
    fix: Fix = ()
    problems = list[Problem]()
    if any(word.startswith(("data=", "data.root=")) for word in changes):
        from resnet_recipes import data
        from resnet_recipes.jobs.offers import find_usual_side, rank_recipes
        from resnet_recipes.recipe.compose import compose

        # other words, and images that are not here, are judged once there is a recipe
        with suppress(RecipeError):
            images = [word for word in changes if word.startswith("data")]
            config = compose("finetune", images).recipe.data
            try:
                facts = data.measure(config, tell=say)
            except NotReadyError as error:
                problems += error.problems if os.path.exists(config.root) else ()
                config = replace(config, val_share=config.val_share or 0.1)
                facts = data.measure(config, tell=say)
            names, rule = rank_recipes(facts, find_usual_side(config, facts))
            fix = (f"recipe={names[0]}", Hint(rule)) if names else fix
    yield Problem("recipe", None, "", fix, () if fix else tuple(known), Kind.MISSING)
    yield from problems


def with_recipe(arguments: Arguments) -> Arguments:
    """Let a word without "=" name the recipe: `mild` stands for `recipe=mild`.

    It is the first that is a recipe's name, or else the first.
    """
    words = arguments.words
    bare = [word for word in words if "=" not in word and word[:1] not in ("", "~", "+")]
    if bare and not is_named(arguments):
        known = Library(arguments.recipes).list_names()
        name = next((word for word in bare if word in known), bare[0])
        words[words.index(name)] = f"recipe={name}"
    return arguments


def is_named(arguments: Arguments) -> bool:
    """Return whether the words name a recipe."""
    return any(word.startswith("recipe=") for word in arguments.words)


def chosen(arguments: Arguments) -> tuple[str, list[str]]:
    """Return the recipe that the words name, and their changes.

    "" if none is named but there is a budget, which decides. Raises RecipeError if there is no such
    recipe.
    """
    library = Library(arguments.recipes)
    names = [word.removeprefix("recipe=") for word in arguments.words if word.startswith("recipe=")]
    names = list(filter(None, names))
    changes = [word for word in arguments.words if not word.startswith("recipe=")]
    known = library.list_names()
    if not names and any(word.startswith(("budget=", "launch.budget=")) for word in changes):
        return "", changes
    if not names:
        values = (word.rpartition("=")[2] for word in changes)
        meant = next((value for value in values if value in known), None)
        if meant:
            raise RecipeError.of("recipe", None, "", f"recipe={meant}", Kind.MISSING)
        raise RecipeError(_missing(changes, known))
    names += [word for word in changes if word in known]
    if len(names) > 1:
        several = ",".join(dict.fromkeys(names))
        fix = (f"recipe={names[0]}", f"resnet-train -m recipe={several}")
        raise RecipeError.of(" ".join(names), None, "a run uses one recipe", fix)
    if "," not in names[0]:
        library.read_chain(names[0])
    elif "-m" not in arguments:
        raise RecipeError.of("recipe", names[0], "several recipes need a sweep", _SWEEP)
    return names[0], changes


def find_packaged(arguments: Arguments) -> Entry | None:
    """Return the packaged recipe that words name without changing more than its images.

    None if a file of the user's, or another setting, has to be judged.
    """
    others = [word for word in arguments.words if not word.startswith(("data=", "data.root="))]
    if len(others) != 1 or not others[0].startswith("recipe="):
        return None
    entry = Library(arguments.recipes).find(others[0].removeprefix("recipe="))
    return entry if entry.origin == "packaged" else None


def problems_of(check: Callable[[Arguments], object], arguments: Arguments) -> tuple[Problem, ...]:
    """Return what `composed` or `chosen` refuses, to be said with what else is wrong."""
    try:
        check(arguments)
    except RecipeError as error:
        return error.problems
    return ()
