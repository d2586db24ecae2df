"""What a message says to type, which is tried before it is printed.

Settings are composed with the recipe that was named, flags and words are read by the command that
they are for, and names are looked up.
"""

import re
import shlex
from collections.abc import Callable, Sequence

from resnet_recipes.base.errors import RecipeError
from resnet_recipes.recipe.library import Library
from resnet_recipes.recipe.suggestions import EVERY_SETTING

#: Takes a command and the recipe that it belongs to; raises RecipeError if it is refused.
Accept = Callable[[Sequence[str], str], None]

_PROGRAMS = ("resnet-train", "resnet-recipes")
_WORD = re.compile(r"[A-Za-z][\w.]*=.*|~[\w.]+|--?[a-z][\w-]*(=.*)?")
_SAID = re.compile(r" {3}.*")  # about what is typed
#: A placeholder, which the reader fills in.
_BLANK = re.compile(r"(.*=)?([A-Z]{2,}|/(path/to|another)/\w+)\b.*")


def tried(error: RecipeError, argv: Sequence[str], accept: Accept) -> RecipeError:
    """Return the error of a command without the remedies that would be refused as well.

    The reason for which one is refused may have a remedy that is accepted.
    """
    problems = []
    for problem in error.problems:
        fixes = [_remedy(line, argv, accept) for line in problem.fix.split("\n    ")]
        otherwise = EVERY_SETTING if problem.is_unknown else ""
        problems.append(problem._replace(fix="\n    ".join(filter(None, fixes)) or otherwise))
    return type(error)(problems)


def _remedy(text: str, argv: Sequence[str], accept: Accept, depth: int = 3) -> str:
    """Return one line of a fix as it is, or what mends it, or "" if it is of no use."""
    command = _command(text, argv)
    try:
        if command:
            accept(command, next((word for word in argv[1:] if word in Library().names()), "mild"))
    except RecipeError as error:
        if typed := _switched_on(command[-1:], argv):
            return f"leave out {shlex.join(typed)}"
        fixes = [one.fix for one in error.problems if {"..."} & {*_command(one.fix, argv)}]
        is_part = "..." in command and depth
        return _remedy(fixes[0], argv, accept, depth - 1) if is_part and fixes else ""
    return text


def _switched_on(off: Sequence[str], argv: Sequence[str]) -> list[str]:
    """Return the words of `argv` that switch on what a word such as ~methods.ema switches off."""
    if not "".join(off).startswith("~"):
        return []
    key = off[0].removeprefix("~")
    return [word for word in argv if word.startswith((f"{key}=", f"{key}."))]


def _command(text: str, argv: Sequence[str]) -> list[str]:
    """Return the command that a line of a fix says to type; empty if there is none.

    Settings and flags are words of the command `argv`, whose recipe they belong to.
    """
    text = re.sub(r"did you mean (.*)\?", r"\1", _SAID.sub("", text))
    try:
        words = shlex.split(text)
    except ValueError:
        return []
    while len(words) > 1 and "=" in words[0] and {*_PROGRAMS} & {*words}:
        words = words[1:]  # what the environment says
    if words[:1] and words[0] in _PROGRAMS:
        return [] if words[-1] == "..." else words
    is_typed = all(
        _WORD.fullmatch(word) or before.startswith("-")
        for before, word in zip(["", *words], words, strict=False)
    ) and not any(map(is_blank, words))
    return [*argv[: 1 + (argv[0] != "resnet-train")], "...", *words] if is_typed and words else []


def is_blank(word: str) -> bool:
    """Return whether a word is a placeholder, such as RUN or data=PATH."""
    return _BLANK.fullmatch(word) is not None
