"""Reject characters that come from copied text, before a command is parsed."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile

from resnet_recipes.base.errors import Command, Hint, Problem, RecipeError

#: Characters that look like other characters or are invisible, with their names.
_LOOKALIKES = (
    ("an invisible character", re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060\ufeff]"), ""),
    ("a no-break space", re.compile("[\u00a0\u2000-\u200a\u202f\u3000]"), " "),
    ("a typographic quote", re.compile("[\u201c\u201d\u201e\u00ab\u00bb]"), '"'),
    ("a typographic quote", re.compile(r"(?<![^\s=])[\u2018\u201a]|\u2019(?!\S)"), "'"),
    ("a typographic dash", re.compile("^[\u2010-\u2015](?=[a-z])"), "--"),
    ("a typographic minus", re.compile("[\u2010-\u2015\u2212]"), "-"),
)

_QUOTES = re.compile("[\u201c\u201d\u201e]")

#: Text before a command in a terminal or on a page.
_PROMPTS = ("$", "#", "%", ">", ">>>", "\u276f", "\u279c", "resnet-train", "resnet-recipes")


def reject_pasted(program: str, argv: Sequence[str]) -> None:
    """Raise RecipeError with the cleaned command if arguments contain unusual characters."""
    RecipeError.raise_if_any(_find_character_problems(argv))
    arguments = list[str]()
    faults = list[tuple[str, str]]()
    for argument in _join(argv):
        typed, names = _clean(argument)
        arguments += typed
        faults += [(argument, f"contains {name}") for name in names]
        if argument == "...":
            faults.append((argument, "is a placeholder, not an argument"))
            arguments.remove(argument)
        if argument.isspace():  # an empty argument may be an unset shell variable
            faults.append(("an argument of spaces", "is where a line of a longer command ended"))
    prompt = list(takewhile(_PROMPTS.__contains__, arguments))
    if prompt:
        faults.append((" ".join(prompt), "is not a part of the command"))
        program = prompt[-1] if prompt[-1].startswith("resnet") else program
        arguments = arguments[len(prompt) :]
    if "#" in arguments:
        faults.append(("#", "starts a comment, but the shell has passed it on"))
        arguments = arguments[: arguments.index("#")]
    if faults:
        *others, last = [Problem(key, None, clause) for key, clause in faults]
        command = Command.of(program, *arguments)
        raise RecipeError([*others, last._replace(fix=command)])


def _find_character_problems(argv: Sequence[str]) -> Iterator[Problem]:
    for text in filter(re.compile("[\ud800-\udfff]").search, argv):
        is_path = os.path.lexists(text.rpartition("=")[2])
        typed = os.fsencode(text).decode("utf-8", "backslashreplace")
        fix = Hint("rename the file or folder") if is_path else ""
        yield Problem(text, None, "is not UTF-8", fix, typed=typed)


def _clean(argument: str) -> tuple[list[str], list[str]]:
    """Return the intended arguments for one argument, and the names of its faults.

    Names of files and folders are not changed.
    """
    if argument.isascii() or any(map(os.path.lexists, (argument, argument.partition("=")[2]))):
        return ([] if argument.isspace() else [argument]), []
    names, text = [], argument
    for name, pattern, plain in _LOOKALIKES:
        cleaned = pattern.sub(plain, text)
        names += [name] if cleaned != text else []
        text = cleaned
    if not names:
        return [argument], []
    try:
        quoted = shlex.split(text)
    except ValueError:  # an unmatched quote
        text = text.replace('"', "").replace("'", "")
        quoted = text.split()
    return (quoted if {'"', "'"} & {*text} or " " not in argument else [text]), names


def _join(argv: Sequence[str]) -> Iterator[str]:
    """Yield the arguments of a command, joined where typographic quotes were meant to join them."""
    ahead = list(argv)
    while ahead:
        argument = ahead.pop(0)
        while ahead and len(_QUOTES.findall(argument)) % 2 and any(map(_QUOTES.search, ahead)):
            argument += f" {ahead.pop(0)}"
        yield argument
