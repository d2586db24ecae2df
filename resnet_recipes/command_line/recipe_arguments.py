"""Compose the recipe given by the arguments of a command."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import (
    Command,
    Fix,
    Hint,
    Kind,
    NotReadyError,
    Problem,
    RecipeError,
    Statement,
)
from resnet_recipes.base.model_config import NETWORKS
from resnet_recipes.command_line.arguments import (
    BUDGET_KEYS,
    DATA_KEYS,
    NAME_KEYS,
    Arguments,
    drop_arguments,
    get_value,
    select_arguments,
)
from resnet_recipes.command_line.printing import say
from resnet_recipes.jobs.ranks import external_launcher
from resnet_recipes.recipe.library import Entry, Library
from resnet_recipes.run_folder import CONFIG

if TYPE_CHECKING:
    from resnet_recipes.data.base import DataFacts
    from resnet_recipes.network.load import Network
    from resnet_recipes.planning.plan import Plan
    from resnet_recipes.recipe.compose import ComposedRecipe
    from resnet_recipes.recipe.schema import Recipe


_TRAINING = ("resnet-train", "resnet-recipes plan")  # commands whose run gets a folder


def compose_recipe(
    arguments: Arguments, needs_data: bool = True, networks: "dict[str, Network] | None" = None
) -> "ComposedRecipe":
    """Compose the recipe given by the arguments, with their changes.

    `networks` keeps the pretrained network for other runs. Raises RecipeError with every problem.
    """
    check_recipe(arguments)
    changes = drop_arguments(arguments.positional, "recipe")
    from resnet_recipes.api import compose_arguments
    from resnet_recipes.jobs import new_run
    from resnet_recipes.recipe.compose import WrongSettingsError
    from resnet_recipes.recipe.hydra_compose import SWEEP

    name = get_value(arguments.positional, "recipe")
    try:
        name = name or _choose_for_budget(changes, arguments)
        result = compose_arguments(name, changes, arguments.recipes, needs_data, networks)
    except WrongSettingsError as error:
        wrong = [problem.key for problem in error.problems]
        wrong += [change.key for problem in error.problems for change in problem.changes]
        errors = ErrorCollector()
        with errors:
            _check_machine_if_used(error.recipe, wrong, arguments)
        problem, *others = list(error.problems) + errors.problems
        if others or arguments.command != "resnet-train":
            raise RecipeError([problem, *others]) from None
        sweep = format_command("resnet-train -m", arguments.positional, arguments)
        raise RecipeError([problem.replace_advice(SWEEP, sweep)]) from None
    except RecipeError as error:
        if name:
            raise
        raise _add_other_problems(error, arguments) from None
    for argument in dict.fromkeys(changes):
        if argument not in result.origin.arguments:
            say(f"note: {argument} has no effect: a later argument changes the same setting")
    if arguments.command not in _TRAINING and "--resume" not in arguments:
        new_run.check_extended(result.recipe.run)
    return result


def plan_command(
    result: "ComposedRecipe", arguments: Arguments, facts: "dict[str, DataFacts] | None" = None
) -> "Plan":
    """Return the plan of a new run; the images of the recipe demo may not exist yet.

    `facts` keeps the facts about data for other runs.
    """
    from resnet_recipes import data
    from resnet_recipes.data.demo import DEMO_FACTS
    from resnet_recipes.jobs import new_run
    from resnet_recipes.jobs.ranks.group import count_ranks

    config = result.recipe.data
    facts = {} if facts is None else facts

    def survey() -> "DataFacts":
        if new_run.is_demo_missing(result.recipe):
            return DEMO_FACTS
        key = str(config)  # counting a million images takes seconds
        facts[key] = facts.get(key) or data.survey_images(config, on_progress=say)
        return facts[key]

    ranks = external_launcher.count_started_ranks() or count_ranks(result.recipe.launch)
    unused = {*_find_unused(result.recipe, arguments)}
    needs_weights = not is_plan(arguments)
    return new_run.plan_run(result, ranks, survey, unused, needs_weights)


def generate_demo(recipe: "Recipe") -> bool:
    """Generate the demo images and return True, if a recipe reads them and they do not exist."""
    from resnet_recipes.data import demo
    from resnet_recipes.jobs.new_run import is_demo_missing

    if not is_demo_missing(recipe):
        return False
    root = demo.DEMO_FACTS.root
    say(f"generating the demo images in {root} (a few seconds)")
    try:
        demo.write(Path(recipe.data.root))
    except OSError as error:
        raise NotReadyError.at(root, f"cannot be written: {error.strerror}") from None
    return True


def is_plan(arguments: Arguments) -> bool:
    """Return whether a command only prints the plan of a run, which may start elsewhere."""
    return arguments.command.endswith(" plan") or "--dry-run" in arguments


def _find_unused(recipe: "Recipe", arguments: Arguments) -> Iterator[str]:
    """Yield the settings of a recipe that a command does not use on this machine."""
    if is_plan(arguments) or external_launcher.find_launcher():
        yield "launch"
    if arguments.command not in _TRAINING:
        yield from ("run", "log")
    if "-m" in arguments:  # counting a million images again for each run takes seconds
        yield "data.images"
    if "--resume" in arguments:  # the command is repeated until the run to extend exists
        yield "run.extends"
        if Path(recipe.run.root, recipe.run.name, CONFIG).is_file():
            yield "run.name"


def _check_machine_if_used(recipe: "Recipe", wrong: Iterable[str], arguments: Arguments) -> None:
    """Raise RecipeError if this machine cannot run a recipe; skip wrong settings and downloads."""
    from resnet_recipes.jobs import new_run

    if arguments.command != "resnet-recipes job" and "--cfg" not in arguments:
        unused = {*wrong, *_find_unused(recipe, arguments)}
        new_run.check_machine(recipe, None, unused, needs_weights=False)


def format_command(program: str, words: Sequence[str], arguments: Arguments) -> Command:
    """Return the command of a program with these words and the typed flags."""
    flags = [text for item in arguments.flags.items() for text in item if text]
    return Command.of(*program.split(), *words, *flags)


def check_settings(arguments: Arguments, needs_data: bool = False) -> None:
    """Compose and check the recipe; for a sweep, the names of all recipes, and its first run.

    Raises RecipeError if the recipe or a setting is wrong, or if the machine is not ready.
    """
    from resnet_recipes.recipe.hydra_compose import list_points

    positional = drop_arguments(arguments.positional, "nodes")
    if "-m" in arguments:  # each run gets a name
        positional, *others = list_points(drop_arguments(positional, *NAME_KEYS))
        for settings in others:
            _check_name(replace(arguments, positional=settings))
    result = compose_recipe(replace(arguments, positional=positional), needs_data)
    _check_machine_if_used(result.recipe, (), arguments)


def _choose_for_budget(changes: Sequence[str], arguments: Arguments) -> str:
    """Return the best recipe for a budget and report the reason."""
    from resnet_recipes.jobs.candidates import find_candidates
    from resnet_recipes.jobs.machine.run_time import UNKNOWN_TIME

    names = Library(arguments.recipes).list_names()
    candidates = find_candidates(changes, arguments.recipes, names)
    best = next((name for name in candidates.suitable if name not in candidates.skipped), "")
    if best in candidates.untimed:  # the run measures its time
        say(f"recipe={best}: best for these images; the time is not known yet")
        return best
    if candidates.options and not candidates.reason:
        # this raises the problem of the best recipe for these images if no suitable recipe fits
        suitable = candidates.suitable or ("mild",)
        candidates = find_candidates(changes, arguments.recipes, suitable)
    if not candidates.options:
        others = drop_arguments(changes, *BUDGET_KEYS)
        fix = Command.of("resnet-recipes", "estimate", "mild", *others)
        raise NotReadyError.of("budget", None, UNKNOWN_TIME, fix)
    names = [
        f"{plan.recipe.name}" + (f" ({accuracy.top1:.1f}%, {accuracy.source})" if accuracy else "")
        for plan, _, _, accuracy in candidates.options
    ]
    reason = f": {candidates.reason}" if candidates.reason else ""
    runners_up = f"; next: {', '.join(names[1:3])}" if names[1:] else ""
    say(f"recipe={names[0]}{reason}{runners_up}")
    return candidates.options[0].plan.recipe.name


def _explain_missing(
    arguments: Arguments, changes: Sequence[str], recipes: Sequence[str]
) -> Iterator[Problem]:
    """Yield the problem of a missing recipe, with a suggestion, and the problems of the images."""
    fix: Fix = ()
    problems = list[Problem]()
    if select_arguments(changes, *DATA_KEYS):
        from resnet_recipes import data
        from resnet_recipes.jobs.candidates import find_typical_size, rank_recipes
        from resnet_recipes.recipe.compose import compose

        # other arguments, and images on other machines, are checked once a recipe is given
        with suppress(RecipeError):
            images = [argument for argument in changes if argument.startswith("data")]
            config = compose("finetune", images).recipe.data
            try:
                facts = data.survey_images(config, on_progress=say)
            except NotReadyError as error:
                problems += error.problems if os.path.exists(config.root) else ()
                config = replace(config, val_share=0.1)
                facts = data.survey_images(config, on_progress=say)
            names, reason = rank_recipes(facts, find_typical_size(config, facts))
            if names:
                command = format_command(arguments.command, [names[0], *changes], arguments)
                hint = Hint(f"recipe={names[0]} is {reason}")
                fix = (f"recipe={names[0]}" if problems else command, hint)
        if problems and not fix:
            fix = "recipe=finetune"
    yield Problem("recipe", None, "", fix, () if fix else tuple(recipes), Kind.MISSING)
    yield from problems


def name_recipe(arguments: Arguments) -> Arguments:
    """Return the arguments with a marked recipe: `mild` becomes `recipe=mild`.

    It is the first argument without "=" that names a recipe, or else the first without "=".
    """
    positional = list(arguments.positional)
    bare = [text for text in positional if "=" not in text and text[:1] not in ("", "~", "+")]
    if bare and not has_recipe(arguments):
        recipes = Library(arguments.recipes).list_names()
        name = next((argument for argument in bare if argument in recipes), bare[0])
        positional[positional.index(name)] = f"recipe={name}"
    return replace(arguments, positional=positional)


def has_recipe(arguments: Arguments) -> bool:
    """Return whether an argument names a recipe."""
    return bool(select_arguments(arguments.positional, "recipe"))


def check_recipe(arguments: Arguments) -> None:
    """Raise RecipeError unless the arguments give one recipe that exists, or a budget.

    The error includes the problems of the settings.
    """
    try:
        _check_name(arguments)
    except RecipeError as error:
        raise _add_other_problems(error, arguments) from None


def _add_other_problems(error: RecipeError, arguments: Arguments) -> RecipeError:
    """Return the error of a missing or wrong recipe, with the problems of the settings.

    The settings are checked with the recipe that the user most likely meant, or with mild.
    """
    names = Library(arguments.recipes).list_names()
    settings = drop_arguments(arguments.positional, "recipe")
    changes = [argument for argument in settings if argument not in names]
    root = get_value(changes, *DATA_KEYS)
    if not drop_arguments(changes, *DATA_KEYS) and (not root or os.path.exists(root)):
        return error  # nothing else can be wrong
    typed = get_value(arguments.positional, "recipe")
    readable = Library(arguments.recipes).list_readable_names()
    words = [
        word for problem in error.problems for fix in problem.corrections for word in fix.split()
    ]
    recipe = next((word for word in (typed, *settings, *words) if word in readable), "mild")
    flags = {**arguments.flags, "-m": ""} if "," in typed else arguments.flags
    complete = replace(arguments, positional=[f"recipe={recipe}", *changes], flags=flags)
    return add_setting_problems(error, complete)


def add_setting_problems(error: RecipeError, arguments: Arguments) -> RecipeError:
    """Return an error with the problems of a recipe and its settings added."""
    try:
        check_settings(arguments)
    except RecipeError as other:
        added = [problem for problem in other.problems if problem not in error.problems]
        kind = min(error, other, key=lambda mistake: mistake.exit_code)
        return type(kind)([*map(_drop_command, error.problems), *added]) if added else error
    return error


def _drop_command(problem: Problem) -> Problem:
    """Return a problem without a command that repeats other mistakes, if other advice is left."""
    others = tuple(fix for fix in problem.advice if not isinstance(fix, Command))
    return problem if others in ((), problem.advice) else problem._replace(fix=others)


def _check_name(arguments: Arguments) -> None:
    """Raise RecipeError unless the arguments give one recipe that exists, or a budget."""
    library = Library(arguments.recipes)
    positional = arguments.positional
    typed = (text.removeprefix("recipe=") for text in select_arguments(positional, "recipe"))
    names = list(filter(None, typed))
    changes = drop_arguments(positional, "recipe")
    recipes = library.list_names()
    if not names and select_arguments(changes, *BUDGET_KEYS):
        return  # the best recipe is chosen later
    if not names:
        values = (argument.rpartition("=")[2] for argument in changes)
        if meant := next((value for value in values if value in recipes), None):
            raise RecipeError.of("recipe", None, "", f"recipe={meant}", Kind.MISSING)
        raise RecipeError(_explain_missing(arguments, changes, library.list_readable_names()))
    names += [argument for argument in changes if argument in recipes]
    key = " ".join(names)
    if "-m" not in arguments:  # mild,hot
        names = [part for name in names for part in name.split(",")]
    if len(names) > 1:
        for name in names:
            if "," not in name:
                library.read_chain(name)  # reports a missing file
        others = [argument for argument in changes if argument not in recipes]
        fix = _suggest_one_or_sweep(names, others, arguments)
        raise RecipeError.of(key, None, Statement("a run uses one recipe"), fix)
    is_folder = os.path.isdir(names[0])
    meant = names[0] if is_folder else names[0].replace("-", "").replace("_", "")
    if names[0] not in recipes and (is_folder or meant in NETWORKS):
        keys, noun = (DATA_KEYS, "folder") if is_folder else (("model.name",), "network")
        completed = [f"{keys[0]}={meant}", *drop_arguments(changes, *keys)]
        missing, *rest = _explain_missing(arguments, completed, recipes)
        if missing.corrections and not rest:
            raise RecipeError.of("recipe", names[0], f"is a {noun}, not a recipe", missing.fix)
    if "," not in names[0]:
        library.read_chain(names[0])


def _suggest_one_or_sweep(names: list[str], changes: list[str], arguments: Arguments) -> Fix:
    """Return the command with the first recipe, and the command of a sweep over all of them."""
    several = f"recipe={','.join(dict.fromkeys(names))}"
    single = format_command(arguments.command, [names[0], *changes], arguments)
    sweep: str = Command.of("resnet-train", "-m", several, *changes, "--dry-run")
    if arguments.command in ("resnet-train", "resnet-recipes job"):
        sweep = format_command(f"{arguments.command} -m", [several, *changes], arguments)
        sweep = sweep if select_arguments(changes, *DATA_KEYS) else ""
    return single, sweep


def find_packaged_recipe(arguments: Arguments) -> Entry | None:
    """Return the packaged recipe that the only argument names, or None."""
    if len(arguments.positional) != 1 or not has_recipe(arguments):
        return None
    entry = Library(arguments.recipes).find(get_value(arguments.positional, "recipe"))
    return entry if entry.origin == "packaged" else None
