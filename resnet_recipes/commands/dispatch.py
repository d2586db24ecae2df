"""Run the module of a command, for `resnet-train` and `resnet-recipes`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from resnet_recipes import __version__
from resnet_recipes.base.error_collector import ErrorCollector
from resnet_recipes.base.errors import Command, ExitCode, Kind, Problem, RecipeError
from resnet_recipes.base.paths import make_missing_data_problem
from resnet_recipes.base.suggestions import make_unknown_problem
from resnet_recipes.command_line.arguments import Arguments, parse_arguments
from resnet_recipes.command_line.characters import reject_pasted
from resnet_recipes.command_line.printing import get_page_width, say
from resnet_recipes.command_line.recipe_arguments import (
    check_recipe,
    check_settings,
    find_packaged_recipe,
    has_recipe,
    name_recipe,
)
from resnet_recipes.command_line.run_arguments import (
    check_resumed,
    find_network_setting_problems,
    is_run,
    replace_extend,
    resolve_weights,
)
from resnet_recipes.command_line.usage import format_row
from resnet_recipes.commands import COMMANDS, get_usage, import_command
from resnet_recipes.commands.foreign_command import reject_foreign_command
from resnet_recipes.jobs.ranks import external_launcher
from resnet_recipes.recipe.library import Library, read

_MODULE_OF_FLAG = {
    "--completion": "completion",
    "--describe": "show",
    "--cfg": "train",
    "-m": "sweep",
    "--dry-run": "plan",
}

_VERSION_ARGUMENTS = ("--version", "-v", "-V", "version")


def train(argv: Sequence[str]) -> int:
    """Run `resnet-train` and return its exit code."""
    reject_pasted("resnet-train", argv)
    if not argv or {"--help", "-h", "help"} & set(argv):
        about = "plan" if "--dry-run" in argv else "train"
        print(get_usage(about).format_page(get_page_width()), end="")
        return ExitCode.DONE if argv else ExitCode.RECIPE
    if argv[0] in _VERSION_ARGUMENTS or "--version" in argv:
        return _print_version()
    if "--list" in argv:
        wrong = get_usage("train").placeholders.keys() - get_usage("ls").placeholders.keys()
        others = [argument for argument in argv if argument not in wrong]
        problems = [
            Problem(argument, None, "cannot be used with --list", kind=Kind.UNUSED)
            for argument in argv
            if argument in wrong and argument != "--list"
        ]
        RecipeError.raise_if_any(problems and [*problems, *_list_problems("ls", others)])
        return run(["ls", *others])
    if argv[0] not in Library().list_names():
        reject_foreign_command(argv, _list_problems)
    arguments, checked = _parse_and_check("train", argv)
    name = _choose_module(arguments)
    starts = name == "train" and not {"--cfg", "--check"} & arguments.flags.keys()
    if starts and external_launcher.find_launcher():
        # only rank 0 composes; other ranks do not import Hydra
        return external_launcher.train_as_rank(
            argv, lambda: import_command(name).prepare_run(arguments), say
        )
    if "--cfg" in arguments:  # `--cfg job` in Hydra
        others = [argument for argument in arguments.positional if argument != "job"]
        arguments = replace(arguments, positional=others)
    if name in ("train", "plan", "sweep") and "--resume" not in arguments:
        check_recipe(arguments)
    return import_command(name).run(arguments, *checked)


def run(argv: Sequence[str]) -> int:
    """Run a command of `resnet-recipes` and return its exit code."""
    reject_pasted("resnet-recipes", argv)
    name, *rest = argv or ["--help"]
    if name in ("--help", "-h"):
        print(_format_overview(), end="")
        return ExitCode.DONE if argv else ExitCode.RECIPE
    if name in _VERSION_ARGUMENTS:
        return _print_version()
    if name == "train":
        return train(rest)
    if name == "help":
        return run([*rest[:1], "--help"])
    if name not in COMMANDS:
        if name in Library().list_names():
            clause = "is a recipe, not a command"
            raise RecipeError.of("COMMAND", name, clause, Command.of("resnet-train", *argv))
        others = [argument for argument in rest if argument not in ("help", "--help", "-h")]
        reject_foreign_command([name.lstrip("-"), *others], _list_problems, name)
        if name and is_run(name):
            fix = Command.of("resnet-recipes", "watch", name)
            raise RecipeError.of("COMMAND", name, "is a run, not a command", fix)
        known = (*COMMANDS, "train", "--help", "--version")
        raise RecipeError([make_unknown_problem("command", name, known)])
    usage = get_usage(name)
    if {"--help", "-h"} & set(rest):
        print(usage.format_page(get_page_width()), end="")
        return ExitCode.DONE
    arguments, checked = _parse_and_check(name, rest)
    if usage.takes_recipe and (usage.needs_recipe or has_recipe(arguments)):
        check_recipe(arguments)
    return import_command(name).run(arguments, *checked)


def _parse_and_check(name: str, argv: Sequence[str]) -> tuple[Arguments, tuple[Any, ...]]:
    """Return the arguments of a command, and the further arguments of its run().

    Raises RecipeError with every problem that is found.
    """
    check_settings = partial(_check_other_settings, name, argv)
    parsed = parse_arguments(argv, get_usage(name), partial(_check, name), check_settings)
    arguments, checked = parsed
    return resolve_weights(replace_extend(arguments)), checked


def _check(name: str, arguments: Arguments) -> tuple[Arguments, tuple[Any, ...]]:
    """Return the arguments with a marked recipe, and what the command's check() returns."""
    if get_usage(name).takes_recipe:
        arguments = name_recipe(arguments)
    errors = ErrorCollector()
    if name == "train":
        with errors:
            RecipeError.raise_if_any(_find_flag_problems(arguments))
    module = import_command(_choose_module(arguments) if name == "train" else name)
    checked = None
    with errors:
        if hasattr(module, "check"):
            checked = module.check(arguments)
    errors.raise_if_any()
    return arguments, checked or ()


def _find_flag_problems(arguments: Arguments) -> Iterator[Problem]:
    """Yield the problems of flags of `resnet-train` that need another flag."""
    if "--parallel" in arguments and "-m" not in arguments:
        number = arguments.flags["--parallel"]
        yield Problem("--parallel", number, "works only with a sweep", f"-m --parallel {number}")
    if "--json" in arguments and _choose_module(arguments) in ("train", "sweep"):
        if others := sorted({"--cfg", "--check"} & arguments.flags.keys()):
            yield Problem("--json", None, f"cannot be used with {others[0]}", kind=Kind.UNUSED)
        elif "--dry-run" not in arguments:
            yield Problem("--json", None, "needs --dry-run or --list", "--dry-run")


def _check_other_settings(name: str, argv: Sequence[str], arguments: Arguments) -> None:
    """Raise RecipeError if the recipe or a setting is wrong, in a command with another mistake."""
    usage = get_usage(name)
    if usage.opens_network:
        RecipeError.raise_if_any(find_network_setting_problems(name, arguments.positional))
    if not usage.takes_recipe or {"--describe", "--completion"} & arguments.flags.keys():
        return
    # a recipe may be the value of an unknown flag
    values = [argument for argument in argv if argument in Library().list_names()]
    if values and arguments.recipes and not arguments.recipes.is_dir():
        flags = {flag: text for flag, text in arguments.flags.items() if flag != "--recipes"}
        arguments = replace(arguments, flags=flags)
    arguments = resolve_weights(replace_extend(name_recipe(arguments)))
    if "--resume" in arguments and "-m" not in arguments:
        check_resumed(arguments)
        return
    if not (values or usage.needs_recipe or has_recipe(arguments)):
        return
    if not has_recipe(arguments) and values:
        positional = [*arguments.positional, f"recipe={values[0]}"]
        arguments = replace(arguments, positional=positional)
    module = _choose_module(arguments) if name == "train" else name
    needs_data = module != "plan" and "--cfg" not in arguments
    check_recipe(arguments)
    # no other check needs torch
    if "-m" not in arguments and (entry := find_packaged_recipe(arguments)):
        if needs_data and "root" not in read(entry).tree.get("data", {}):
            raise RecipeError([make_missing_data_problem()])
    else:
        check_settings(arguments, needs_data)


def _list_problems(name: str, argv: list[str]) -> list[Problem]:
    """Return the problems of these arguments for a command."""
    errors = ErrorCollector()
    check = partial(_check_other_settings, name, argv)
    with errors:
        check(parse_arguments(argv, get_usage(name), check_settings=check))
    return errors.problems


def _choose_module(arguments: Arguments) -> str:
    """Return the module selected by the flags of `resnet-train`."""
    return next((module for flag, module in _MODULE_OF_FLAG.items() if flag in arguments), "train")


def _print_version() -> int:
    print(f"resnet-recipes {__version__}")
    return ExitCode.DONE


def _format_overview() -> str:
    rows = [
        format_row(
            usage.line.removeprefix("resnet-recipes "),
            usage.about,
            column=27,
            width=get_page_width(),
        )
        for usage in map(get_usage, COMMANDS)
    ]
    return "\n".join(
        [
            "resnet-recipes COMMAND ...",
            "",
            *rows,
            "",
            "Help for one command: resnet-recipes COMMAND --help",
            "To train: resnet-train NAME data=/path/to/images; or resnet-recipes train ...",
            "",
        ]
    )
