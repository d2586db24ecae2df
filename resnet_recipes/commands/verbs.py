"""The two commands: find the module that does what the words ask for, and run it."""

import shlex
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType

from resnet_recipes import __version__
from resnet_recipes.base.errors import ExitCode, Problem, RecipeError
from resnet_recipes.base.paths import make_missing_data
from resnet_recipes.base.suggestions import VERBS as OTHERS
from resnet_recipes.base.suggestions import make_unknown
from resnet_recipes.commands.arguments import Arguments, Usage, row, split
from resnet_recipes.commands.characters import refuse_pasted
from resnet_recipes.commands.composed import (
    chosen,
    composed,
    find_packaged,
    is_named,
    problems_of,
    with_recipe,
)
from resnet_recipes.commands.places import extended, has_run, is_setting, with_weights
from resnet_recipes.commands.printing import page_width, say
from resnet_recipes.jobs import external
from resnet_recipes.recipe.library import Library, read

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


def usage_of(name: str) -> Usage:
    """Return the page of a command; that of `resnet-train` is "train"."""
    return _module(name).USAGE


def train(argv: Sequence[str]) -> int:
    """Run `resnet-train` and return its exit code."""
    refuse_pasted("resnet-train", argv)
    if not argv or {"--help", "-h", "help"} & set(argv):
        about = "plan" if "--dry-run" in argv else "train"
        print(usage_of(about).page(page_width()), end="")
        return ExitCode.DONE if argv else ExitCode.RECIPE
    if argv[0] in _VERSION or "--version" in argv:
        return _version()
    if argv[0] not in Library().list_names():
        _refuse_verb(argv)
    arguments = with_weights(with_recipe(extended(_parsed("train", argv))))
    if "--parallel" in arguments and "-m" not in arguments:
        rule = "works only with a sweep"
        raise RecipeError.of("--parallel", arguments.flags["--parallel"], rule, "-m")
    name = _asked(arguments)
    starts = name == "train" and not {"--cfg", "--check"} & arguments.flags.keys()
    if starts and external.find_launcher():
        # rank 0 composes; no other rank imports Hydra
        return external.join(argv, lambda: _module(name).prepared(arguments), say)
    if "--cfg" in arguments:  # which Hydra calls `--cfg job`
        arguments.words = [word for word in arguments.words if word != "job"]
    if name in ("train", "plan") and "--resume" not in arguments:
        chosen(arguments)
    return _module(name).run(arguments)


def run(argv: Sequence[str]) -> int:
    """Run a command of `resnet-recipes` and return its exit code."""
    refuse_pasted("resnet-recipes", argv)
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
        if name in Library().list_names():
            rule = "is a recipe, not a command"
            raise RecipeError.of(name, None, rule, shlex.join(["resnet-train", *argv]))
        _refuse_verb([name.lstrip("-"), *rest])
        raise RecipeError([make_unknown("command", name, (*VERBS, "train", "--help"))])
    usage = usage_of(name)
    if {"--help", "-h"} & set(rest):
        print(usage.page(page_width()), end="")
        return ExitCode.DONE
    arguments = with_weights(_parsed(name, rest))
    if usage.composes and (is_named(with_recipe(arguments)) or "[NAME]" not in usage.line):
        chosen(arguments)  # reports a wrong name before seconds of imports
    return _module(name).run(arguments)


def _judge(name: str, found: Arguments, needs_data: bool = False) -> None:
    """Raise RecipeError if the settings of a command are wrong, or its recipe.

    Of a sweep, the first point is judged.
    """
    if has_run(found):
        return
    if name in ("eval", "predict", "export"):
        from resnet_recipes.inference.open import apply_changes
        from resnet_recipes.recipe.schema import Recipe

        apply_changes(Recipe(), list(filter(is_setting, found.words)))
    elif _composes(name):
        chosen(with_recipe(found))
        from resnet_recipes.recipe.hydra_compose import list_points

        words = [word for word in found.words if not word.startswith("nodes=")]
        words = list_points(words)[0] if "-m" in found else words
        composed(Arguments(found.flags, words), needs_data)


def _composes(name: str) -> bool:
    """Return whether a command takes a recipe and its settings."""
    return name in ("sweep", "job", "train") or (name in VERBS and usage_of(name).composes)


def _parsed(name: str, argv: Sequence[str]) -> Arguments:
    """Return a command's arguments. Raises RecipeError, also for its recipe and settings."""

    def also(found: Arguments) -> Iterable[Problem]:
        asked = _asked(found) if name == "train" else name
        taken = [
            word for word in argv if word in Library().list_names()
        ]  # as an unknown flag's value
        if not _composes(asked) or has_run(found):
            return problems_of(partial(_judge, asked, needs_data=False), found)
        if not is_named(with_recipe(found)) and taken:
            found.words.append(f"recipe={taken[0]}")
        if wrong := problems_of(chosen, found):  # the settings are judged with another recipe
            found.words = [word for word in found.words if not word.startswith("recipe=")]
            found.words.insert(0, "recipe=mild")
        needs_data = asked != "plan" and "--cfg" not in found and not wrong
        if "-m" not in found and (entry := find_packaged(found)):  # nothing else needs torch
            is_set = any(word.startswith(("data=", "data.root=")) for word in found.words)
            is_set = is_set or "root" in read(entry).tree.get("data", {})
            return [*wrong, *([] if is_set or not needs_data else [make_missing_data()])]
        return [*wrong, *problems_of(partial(_judge, asked, needs_data=needs_data), found)]

    return split(argv, usage_of(name), also)


def _asked(arguments: Arguments) -> str:
    """Return what `resnet-train` is asked to do by its flags."""
    return next((module for flag, module in _INSTEAD.items() if flag in arguments), "train")


def _refuse_verb(argv: Sequence[str]) -> None:
    """Raise RecipeError if the first word is a command, ours or another program's."""
    name, *rest = argv
    if name == "classify" and rest[:1] and rest[0] in (*VERBS, *OTHERS, "train"):  # a task
        name, *rest = rest
    first, _, other = (OTHERS[name].words if name in OTHERS else name).partition(" | ")
    named = [word for word in rest if not word.startswith("-")]
    is_first = named and (first != "show" or named[0] in Library().list_names())
    ours, *own = (first if is_first or not other else other).split() or [name]
    if ours not in (*VERBS, "train"):
        return
    command = [*(["resnet-train"] if ours == "train" else ["resnet-recipes", ours]), *own]
    rule = f"is a command of {command[0]}" if name in VERBS else "is not a command here"
    raise RecipeError([Problem(name, None, rule, shlex.join([*command, *rest]))])


def _module(name: str) -> ModuleType:
    return import_module(f"resnet_recipes.commands.{name}")


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
