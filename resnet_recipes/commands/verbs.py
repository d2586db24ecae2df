"""The two commands: find the module that does what the words ask for, and run it."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from math import inf
from types import ModuleType

from resnet_recipes import __version__
from resnet_recipes.base import names
from resnet_recipes.base.errors import ExitCode, Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments, Usage, row, split
from resnet_recipes.commands.composed import chosen, composed, is_named, problems_of, with_recipe
from resnet_recipes.commands.places import (
    LAST,
    extended,
    has_run,
    is_setting,
    run_places,
    with_weights,
)
from resnet_recipes.commands.printing import page_width
from resnet_recipes.commands.remedies import is_blank
from resnet_recipes.jobs import external
from resnet_recipes.recipe.foreign import VERBS as OTHERS
from resnet_recipes.recipe.library import Library
from resnet_recipes.recipe.suggestions import did_you_mean

#: The commands of `resnet-recipes`, in the order of the overview. Each is a file of this folder,
#: with its page, USAGE, and run(), and is imported when it is typed.
VERBS = (
    "ls",
    "show",
    "cp",
    "diff",
    "validate",
    "methods",
    "plan",
    "estimate",
    "teach",
    "runs",
    "watch",
    "stop",
    "compare",
    "report",
    "eval",
    "predict",
    "export",
    "convert",
    "doctor",
    "job",
)

#: Flags of `resnet-train` that do something else than train, with the file that does it.
_INSTEAD = {
    "--completion": "completion",
    "--list": "ls",
    "--describe": "show",
    "--cfg": "train",
    "-m": "sweep",
    "--dry-run": "plan",
}

_VERSION = ("--version", "-v", "-V", "version")

_MODULES = {name: name for name in (*VERBS, *_INSTEAD.values(), "train")}


def usage_of(name: str) -> Usage:
    """Return the page of a command; that of `resnet-train` is "train"."""
    return _module(name).USAGE


def train(argv: Sequence[str]) -> int:
    """Run `resnet-train` and return its exit code."""
    if not argv or {"--help", "-h", "help"} & set(argv):
        about = "plan" if "--dry-run" in argv else "train"
        print(usage_of(about).page(page_width()), end="")
        return ExitCode.DONE if argv else ExitCode.RECIPE
    if argv[0] in _VERSION:
        return _version()
    if argv[0] not in Library().names():
        _refuse_verb(argv)
    arguments = with_weights(with_recipe(extended(_parsed("train", argv))))
    if "--version" in arguments:
        return _version()
    if "--parallel" in arguments and "-m" not in arguments:
        rule = "runs several runs of a sweep at a time"
        raise RecipeError.of("--parallel", arguments.flags["--parallel"], rule, "add -m")
    name = _asked(arguments)
    starts = name == "train" and not {"--cfg", "--check"} & arguments.flags.keys()
    if starts and external.launcher():
        # rank 0 composes; no other rank imports Hydra
        return external.join(argv, lambda: _module(name).prepared(arguments))
    if "--cfg" in arguments:  # which Hydra calls `--cfg job`
        arguments.words = [word for word in arguments.words if word != "job"]
    if name in ("train", "plan") and "--resume" not in arguments:
        chosen(arguments)
    return _module(name).run(arguments)


def run(argv: Sequence[str]) -> int:
    """Run a command of `resnet-recipes` and return its exit code."""
    name, *rest = argv or ["--help"]
    if name in ("--help", "-h"):
        print(_overview(), end="")
        return ExitCode.DONE
    if name in _VERSION:
        return _version()
    if name == "train":
        return train(rest)
    if name == "slurm":
        name, rest = "job", ["--for", "slurm", *rest]
    if name == "help":
        return run([*rest[:1], "--help"])
    if name not in VERBS:
        if name in Library().names():
            rule = "is a recipe, and this command does not train"
            raise RecipeError.of(name, None, rule, shlex.join(["resnet-train", *argv]))
        _refuse_verb([name.lstrip("-"), *rest])
        fix = did_you_mean(name, (*VERBS, "--help")) or f"commands: {', '.join(VERBS)}"
        raise RecipeError.of(name, None, "unknown command", fix)
    usage = usage_of(name)
    if {"--help", "-h"} & set(rest):
        print(usage.page(page_width()), end="")
        return ExitCode.DONE
    arguments = with_weights(_parsed(name, rest))
    if usage.composes and (is_named(with_recipe(arguments)) or "[NAME]" not in usage.line):
        chosen(arguments)  # reports a wrong name before seconds of imports
    return _module(name).run(arguments)


def accept(command: Sequence[str], recipe: str = "mild") -> None:
    """Raise RecipeError if a command that a message tells to type would be refused in its turn.

    "..." stands for the words of the command that was refused, which named `recipe`.
    """
    if "--help" in command:
        return
    program, *words = command
    name, *words = words if program == "resnet-recipes" else ["train", *words]
    if name not in (*VERBS, "train"):
        raise RecipeError.of(name, None, "unknown command")
    is_part, usage = "..." in words, usage_of(name)
    own = words[words.index("...") + 1 :] if is_part else words
    found = split(own, usage if not is_part else replace(usage, words=(0, inf)))
    takes_run = "RUN" in usage.line and name != "diff"
    if runs := [word for word in found.words if takes_run and not is_setting(word)]:
        run_places(word for word in runs if word not in (LAST, "rm") and not is_blank(word))
    elif name == "show":
        Library(found.recipes).chain(found.words[0].removeprefix("recipe="))
    elif name == "ls" and found.words:
        raise RecipeError.of("ls", None, "lists all recipes")
    settings = [word for word in found.words if word not in runs]
    if name == "job":
        settings = [word for word in settings if not word.startswith("nodes=")]
    if "RUN|FILE" in usage.line and settings:
        from resnet_recipes.jobs.opened import allowed

        allowed(settings)
    elif not has_run(found) and (usage.composes or name == "job"):
        if is_part and not any(word.startswith("recipe=") for word in settings):
            settings.insert(0, f"recipe={recipe}")
        _composed(Arguments(found.flags, settings), own if is_part else ())


def _composed(arguments: Arguments, typed: Sequence[str]) -> None:
    """Compose a recipe. Raises RecipeError for what is wrong with all words, or with `typed`."""
    chosen(with_recipe(arguments))
    if not any("=" in word or word[0] == "~" for word in typed or arguments.words):
        return
    from resnet_recipes.backbones import library_of
    from resnet_recipes.recipe.overrides import expanded
    from resnet_recipes.recipe.sweep import points

    if "-m" in arguments:
        arguments.words = points(arguments.words)[0]
    try:
        model = composed(arguments, needs_data=False).recipe.model
        library_of(model.name)
        if model.weights and not names.WEIGHTS.fullmatch(model.weights):
            run_places([model.weights], "model.weights")
    except RecipeError as error:
        keys = {key for word in typed for key in (word, *(one.key for one in expanded(word)))}
        if wrong := [one for one in error.problems if not typed or one.key in keys]:
            raise RecipeError(wrong) from None


def _parsed(name: str, argv: Sequence[str]) -> Arguments:
    """Return a command's arguments. Raises RecipeError, also for its recipe and settings."""

    def also(found: Arguments) -> Iterable[Problem]:
        asked = _asked(found) if name == "train" else name
        composes = asked == "train" or (asked in VERBS and usage_of(asked).composes)
        if not (composes or asked in ("sweep", "job")) or has_run(found):
            return ()
        taken = [word for word in argv if word in Library().names()]  # as an unknown flag's value
        if taken and not any(word.startswith("recipe=") for word in with_recipe(found).words):
            found.words.append(f"recipe={taken[0]}")
        if not composes:
            return problems_of(chosen, found)
        needs_data = asked != "plan" and "--cfg" not in found
        return problems_of(partial(composed, needs_data=needs_data), found)

    return split(argv, usage_of(name), also)


def _asked(arguments: Arguments) -> str:
    """Return what `resnet-train` is asked to do by its flags."""
    return next((module for flag, module in _INSTEAD.items() if flag in arguments), "train")


def _refuse_verb(argv: Sequence[str]) -> None:
    """Raise RecipeError if the first word is a command, ours or another program's."""
    name, *rest = argv
    if name == "classify" and rest[:1] and rest[0] in (*VERBS, *OTHERS, "train"):  # a task
        name, *rest = rest
    words = OTHERS[name].words if name in OTHERS else name
    candidates = [candidate.split() or [name] for candidate in words.split(" | ")]
    if candidates[0][0] not in (*VERBS, "train"):
        return
    wrong: list[Problem] = []
    for ours, *own in candidates:
        command = [*(["resnet-train"] if ours == "train" else ["resnet-recipes", ours]), *own]
        rule = f"is a command of {command[0]}" if name in VERBS else "is not a command here"
        problem = Problem(name, None, rule, shlex.join([*command, *rest]))
        try:
            _parsed(ours, [*own, *rest])
            accept([*command, *rest])
        except RecipeError as error:
            fix = " ".join([*command, "..."])
            wrong = wrong or [problem._replace(fix=fix), *error.problems]
        else:
            raise RecipeError([problem])
    raise RecipeError(wrong)


def _module(name: str) -> ModuleType:
    return import_module(f"resnet_recipes.commands.{_MODULES[name]}")


def _version() -> int:
    print(f"resnet-recipes {__version__}")
    return ExitCode.DONE


def _overview() -> str:
    rows = [
        row(usage.line.removeprefix("resnet-recipes "), usage.about, column=27, width=page_width())
        for usage in map(usage_of, VERBS)
    ]
    return "\n".join(
        [
            "resnet-recipes COMMAND ...",
            "",
            *rows,
            "",
            "More about one of them: resnet-recipes COMMAND --help",
            "To train: resnet-train NAME data=/path/to/images",
            "",
        ]
    )
