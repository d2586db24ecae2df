"""The two commands: find the module that does what the words ask for, and run it."""

import shlex
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType

from resnet_recipes import __version__
from resnet_recipes.base.errors import ExitCode, Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments, Usage, row, split
from resnet_recipes.commands.composed import chosen, composed, is_named, problems_of, with_recipe
from resnet_recipes.commands.places import with_weights
from resnet_recipes.commands.printing import page_width
from resnet_recipes.jobs import external
from resnet_recipes.recipe.foreign_verbs import VERBS as OTHERS
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

_MODULES = {name: name for name in (*VERBS, *_INSTEAD.values(), "train")}


def usage_of(name: str) -> Usage:
    """Return the page of a command; that of `resnet-train` is "train"."""
    return _module(name).USAGE


def train(argv: Sequence[str]) -> int:
    """Run `resnet-train` and return its exit code."""
    if not argv or {"--help", "-h"} & set(argv) or argv[0] == "help":
        print(usage_of("train").page(page_width()), end="")
        return ExitCode.DONE if argv else ExitCode.RECIPE
    if argv[0] not in Library().names():
        _refuse_verb(argv)
    arguments = with_weights(with_recipe(_parsed("train", argv)))
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
    if name == "--version":
        return _version()
    if name == "train":
        return train(rest)
    if name == "slurm":
        name, rest = "job", ["--for", "slurm", *rest]
    if name in ("help", "version"):
        return run([*(rest or [])[:1], f"--{name}"] if name == "help" else ["--version"])
    if name not in VERBS:
        if name in Library().names():
            rule = "is a recipe, and this command does not train"
            raise RecipeError.of(name, None, rule, shlex.join(["resnet-train", *argv]))
        _refuse_verb([name.lstrip("-"), *rest])
        fix = did_you_mean(name, VERBS) or f"commands: {', '.join(VERBS)}"
        raise RecipeError.of(name, None, "unknown command", fix)
    usage = usage_of(name)
    if {"--help", "-h"} & set(rest):
        print(usage.page(page_width()), end="")
        return ExitCode.DONE
    arguments = with_weights(_parsed(name, rest))
    if usage.composes and (is_named(with_recipe(arguments)) or "[NAME]" not in usage.line):
        chosen(arguments)  # reports a wrong name before seconds of imports
    return _module(name).run(arguments)


def _parsed(name: str, argv: Sequence[str]) -> Arguments:
    """Return a command's arguments. Raises RecipeError, also for its recipe and settings."""

    def also(found: Arguments) -> Iterable[Problem]:
        asked = _asked(found) if name == "train" else name
        composes = asked == "train" or (asked in VERBS and usage_of(asked).composes)
        if "--resume" in found or not (composes or asked in ("sweep", "job")):
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
    ours = OTHERS.get(name, name)
    if name == "measure":  # its epochs= was no length of a run
        given = [word for word in rest if word.startswith("epochs=")] or ["epochs=10"]
        rest = [*(word for word in rest if word not in given), *given[-1:]]
        rest[-1] = rest[-1].replace("epochs=", "--sample=")
    elif name == "resume":
        ours, rest = "train", ["--resume", *(rest or ["last"])]
    elif name in ("config", "cfg", "settings"):
        ours, rest = "train", [*(rest or ["mild"]), "--cfg"]
    elif name in ("sweep", "multirun", "tune"):
        ours, rest = "train", ["-m", *rest]
    if ours not in (*VERBS, "train"):
        return
    command = ["resnet-train"] if ours == "train" else ["resnet-recipes", ours]
    rule = f"is a command of {command[0]}" if name in VERBS else "is not a command here"
    problem = Problem(name, None, rule, shlex.join([*command, *rest]))
    try:
        _parsed(ours, rest)
    except RecipeError as error:
        fix = " ".join([*command, "..."])
        raise RecipeError([problem._replace(fix=fix), *error.problems]) from None
    raise RecipeError([problem])


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
