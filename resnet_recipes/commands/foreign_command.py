"""Reject a command of another program, with our command for it."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.errors import Command, Hint, Kind, Problem, RecipeError
from resnet_recipes.base.suggestions import (
    FOREIGN_COMMANDS,
    Translation,
    find_misspelled,
)
from resnet_recipes.command_line.run_arguments import is_setting
from resnet_recipes.commands import COMMANDS, get_usage


class _CommandTranslation(NamedTuple):
    """Our command for a command of another program."""

    name: str  # "train"
    flags: list[str]  # those of the translation: "-m"
    rest: list[str]  # what the user typed after the command
    fix: str  # the complete command, or a hint if arguments are missing

    @property
    def start(self) -> str:
        """The command without the user's arguments: "resnet-train -m"."""
        return Command.of(*_list_words(self.name), *self.flags)


def reject_foreign_command(
    argv: Sequence[str],
    list_problems: Callable[[str, list[str]], list[Problem]],
    typed: str = "",
) -> None:
    """Raise RecipeError if the first argument is a command of resnet-recipes or another program.

    Returns if it has no translation. `list_problems` returns the problems of one of our commands
    with arguments. `typed` is the first argument with its dashes.
    """
    name, *rest = argv
    text = FOREIGN_COMMANDS.get(name, Translation((name,))).text
    if text.partition(" ")[0] not in (*COMMANDS, "train"):
        return
    translation = _translate_command(text, rest)
    fix = translation.fix
    if name == translation.name != "train":
        clause = f"is a command of {_list_words(name)[0]}"
        raise RecipeError.of("COMMAND", name, clause, fix)
    near = find_misspelled(name, COMMANDS)
    also = Command(f"resnet-recipes {near}") if near not in ("", translation.name) else ""
    arguments = [*translation.flags, *translation.rest]
    problems = list_problems(translation.name, arguments) if translation.rest else []
    if [problem.key for problem in problems] == ["data.root"]:
        fix = Hint(f"{fix} data=PATH")
        problems = []
    elif any(problem.key != "model.weights" for problem in problems):  # would be repeated
        fix = Hint(f"{translation.start} ...")
        also = ""
    clause = f"unknown {'flag' if typed.startswith('-') else 'command'}"
    unknown = Problem(typed or name, None, clause, (fix, also), kind=Kind.UNKNOWN)
    raise RecipeError([unknown, *problems])


def _translate_command(text: str, rest: list[str]) -> _CommandTranslation:
    """Translate the words typed after the command, by a row of the table."""
    first, _, alone = text.partition(" | ")
    usage = get_usage(first.split()[0])
    names = [
        argument
        for before, argument in pairwise(["", *rest])
        if not (argument[:1] == "-" or usage.placeholders.get(before) or is_setting(argument))
    ]
    if "{}" in first:  # `new mine`
        first = first.format(Path(names[0]).stem if names else "mine")
        rest = []
        names = []
    ours, *words = (first if names or not alone else alone).split()
    # settings in the table are examples, used only if the user passed no arguments
    flags = [word for word in words if not (word.isupper() or (rest and is_setting(word)))]
    missing = [word for word in words if word.isupper()][len(names) :]
    others = [argument for argument in rest if argument not in names]
    fix: str = Command.of(*_list_words(ours), *flags, *names, *missing, *others)
    if missing or Translation(tuple(flags)).has_placeholder:
        fix = Hint(fix)
    return _CommandTranslation(ours, flags, rest, fix)


def _list_words(command: str) -> list[str]:
    """Return the first words of one of our commands."""
    return ["resnet-train"] if command == "train" else ["resnet-recipes", command]
