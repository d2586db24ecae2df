"""The two commands: find the module that does what the words ask for, and run it."""

import shlex
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType

from resnet_recipes import __version__
from resnet_recipes.base.errors import ExitCode, Problem, RecipeError
from resnet_recipes.commands.arguments import Arguments, row, split
from resnet_recipes.commands.composed import chosen, composed, problems_of, with_recipe
from resnet_recipes.commands.pages import PAGES, TRAIN
from resnet_recipes.commands.places import with_weights
from resnet_recipes.commands.table import page_width
from resnet_recipes.jobs import external
from resnet_recipes.recipe.foreign_verbs import VERBS
from resnet_recipes.recipe.library import Library
from resnet_recipes.recipe.suggestions import did_you_mean

#: Flags of `resnet-train` that do something else than train, with what they do.
_INSTEAD = {
    "--completion": "completion",
    "--list": "ls",
    "--describe": "show",
    "--cfg": "cfg",
    "-m": "sweep",
    "--dry-run": "plan",
    "--check": "check",
}

#: Modules are imported when they run: most need torch, whose import takes seconds.
_MODULES = {name: name for name in (*PAGES, *_INSTEAD.values(), "train")}

#: These compose one recipe. A wrong name or a broken file is reported before those seconds.
_COMPOSING = ("plan", "estimate", "cfg", "check", "train")


def train(argv: Sequence[str]) -> int:
    """Run `resnet-train` and return its exit code."""
    if not argv or {"--help", "-h"} & set(argv) or argv[0] == "help":
        print(TRAIN.page(page_width()), end="")
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
    if name == "train" and external.launcher():
        # rank 0 composes; no other rank imports Hydra
        return external.join(argv, lambda: _module(name).prepared(arguments))
    if name == "cfg":  # which Hydra calls `--cfg job`
        arguments.words = [word for word in arguments.words if word != "job"]
    if name in _COMPOSING and "--resume" not in arguments:
        chosen(arguments)
    return _module(name).run(arguments)


def run(argv: Sequence[str]) -> int:
    """Run a command of `resnet-recipes` and return its exit code."""
    name, *rest = argv or ["--help"]
    if name in ("--help", "-h"):
        print(_overview(), end="")
        return 0
    if name == "--version":
        return _version()
    if name == "train":
        return train(rest)
    if name == "slurm":
        name, rest = "job", ["--for", "slurm", *rest]
    if name in ("help", "version"):
        return run([*(rest or [])[:1], f"--{name}"] if name == "help" else ["--version"])
    if name not in PAGES:
        if name in Library().names():
            rule = "is a recipe, and this command does not train"
            raise RecipeError.of(name, None, rule, shlex.join(["resnet-train", *argv]))
        _refuse_verb([name.lstrip("-"), *rest])
        fix = did_you_mean(name, PAGES) or f"commands: {', '.join(PAGES)}"
        raise RecipeError.of(name, None, "unknown command", fix)
    if {"--help", "-h"} & set(rest):
        print(PAGES[name].page(page_width()), end="")
        return 0
    arguments = with_weights(_parsed(name, rest))
    if name in _COMPOSING:
        chosen(with_recipe(arguments))
    return _module(name).run(arguments)


def _parsed(name: str, argv: Sequence[str]) -> Arguments:
    """Return a command's arguments. Raises RecipeError, also for its recipe and settings."""

    def also(found: Arguments) -> Iterable[Problem]:
        module = _asked(found) if name == "train" else name
        if module not in (*_COMPOSING, "job", "sweep") or "--resume" in found:
            return ()
        taken = [word for word in argv if word in Library().names()]  # as an unknown flag's value
        if taken and not any(word.startswith("recipe=") for word in with_recipe(found).words):
            found.words.append(f"recipe={taken[0]}")
        if module not in _COMPOSING:
            return problems_of(chosen, found)
        return problems_of(partial(composed, needs_data=module not in ("plan", "cfg")), found)

    return split(argv, TRAIN if name == "train" else PAGES[name], also)


def _asked(arguments: Arguments) -> str:
    """Return what `resnet-train` is asked to do by its flags."""
    return next((module for flag, module in _INSTEAD.items() if flag in arguments), "train")


def _refuse_verb(argv: Sequence[str]) -> None:
    """Raise RecipeError if the first word is a command, ours or another program's."""
    name, *rest = argv
    ours = VERBS.get(name, name)
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
    if ours in (*PAGES, "train"):
        command = ["resnet-train"] if ours == "train" else ["resnet-recipes", ours]
        rule = f"is a command of {command[0]}" if name in PAGES else "is not a command here"
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
    return 0


def _overview() -> str:
    rows = [
        row(page.line.removeprefix("resnet-recipes "), page.about, column=27, width=page_width())
        for page in PAGES.values()
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
