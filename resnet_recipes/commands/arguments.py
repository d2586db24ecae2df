"""The arguments of a command: its flags, its other words, and its help page."""

import re
import shlex
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path

from resnet_recipes.base.errors import Problem, RecipeError
from resnet_recipes.base.paths import typed_path
from resnet_recipes.recipe.foreign import meaning_of
from resnet_recipes.recipe.foreign_verbs import FLAGS, IMAGES, RUNS
from resnet_recipes.recipe.short import SHORT
from resnet_recipes.recipe.suggestions import did_you_mean
from resnet_recipes.report.text import wrapped

WIDTH = 80  # columns of a help page in the documentation
NARROW = 60  # columns below which texts are below their labels, not to the right

RECIPES = {"--recipes DIR": "your own recipes (default ./recipes)"}

#: Flags in Hydra's spelling, and in ours.
HYDRAS = {"--multirun": "-m", "--cfg=job": "--cfg"}


@dataclass(frozen=True)
class Usage:
    """What a command takes, and the page that --help prints."""

    line: str  # "resnet-recipes cp NAME FILE"
    about: str  # one sentence
    example: str  # a whole command that works
    flags: Mapping[str, str] = field(default_factory=dict)  # "--recipes DIR": "your own recipes"
    more: str = ""  # paragraphs after the flags; those without indented lines are wrapped
    words: tuple[int, float] = (0, inf)  # the fewest and the most words besides flags
    takes: str = ""  # what they are: "two recipes or run folders"

    @property
    def has_settings(self) -> bool:
        """Whether the command takes settings of a recipe."""
        return "key=value" in self.line

    @property
    def values(self) -> dict[str, str]:
        """What each flag takes: "DIR", or "" for nothing."""
        return {name: value for name, _, value in (flag.partition(" ") for flag in self.flags)}

    def page(self, width: int = WIDTH) -> str:
        """Return the help page, `width` columns wide."""
        rows = dict(self.flags) | {"--help": "print this page"}
        parts = [
            "\n".join(wrapped(self.line, width, rest="    ")),
            "\n".join(wrapped(f"{self.about[:1].upper()}{self.about[1:]}.", width)),
            "\n".join(row(*item, width=width) for item in rows.items()),
            *(_fitted(text, width) for text in self.more.strip("\n").split("\n\n")),
            f"Example:\n  {self.example}",
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def _fitted(text: str, width: int) -> str:
    """Return a paragraph wrapped, or if it has a layout, without lines that are too long."""
    if "\n  " not in text:
        return "\n".join(wrapped(" ".join(text.split()), width))
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if len(line) > width and (parts := re.fullmatch(r"( *)(.*\S)  +(\S.*)", line)):
            lines[index] = row(parts[2], parts[3], len(parts[1]), width=width)
    return "\n".join(lines)


def row(label: str, text: str, indent: int = 2, column: int = 22, width: int = WIDTH) -> str:
    """Return one row of a help page: a label, and text wrapped to its right."""
    column = column if width >= NARROW else indent + 4
    head = f"{'':<{indent}}{label:<{column - indent}}"
    if len(head) == column and head.endswith(" "):
        return "\n".join(wrapped(text, width, head, " " * column))
    above = wrapped(label, width, " " * indent, " " * (indent + 8))
    return "\n".join([*above, *wrapped(text, width, " " * column, " " * column)])


@dataclass
class Arguments:
    """Flags with their values ("" for those that take none), and everything else in order."""

    flags: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def __contains__(self, flag: str) -> bool:
        return flag in self.flags

    @property
    def recipes(self) -> Path | None:
        """The user's recipe folder, if one was named."""
        return (
            typed_path("--recipes", self.flags["--recipes"]) if "--recipes" in self.flags else None
        )


def split(argv: Sequence[str], usage: Usage) -> Arguments:
    """Separate flags from words. Raises RecipeError with a correction for each mistake."""
    found, problems, known = Arguments(), [], usage.values
    ahead = deque(argv)
    while ahead:
        word = HYDRAS.get(ahead[0], ahead.popleft())
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            found.words.append(word)
        elif name not in known:
            has_value = ahead and not ahead[0].startswith("-") and "=" not in ahead[0]
            given = ahead.popleft() if has_value and not equals else value
            problems.append(_unknown(name, given, usage))
        elif known[name]:
            value = value if equals else ahead.popleft() if ahead else ""
            if not value or value.startswith("-"):
                flag = f"{name} {known[name]}"
                problems.append(Problem(name, None, f"needs a value: {flag}", usage.flags[flag]))
            found.flags[name] = value
        elif equals:
            problems.append(Problem(word, None, f"takes no value: {name}"))
        else:
            found.flags[name] = ""
    problems += [
        Problem(word, None, "is not UTF-8", "rename the file or folder")
        for word in argv
        if not _is_utf8(word)
    ]
    if problems := problems + _spaced(found.words, usage.has_settings):
        raise RecipeError(problems)
    if not usage.words[0] <= len(found.words) <= usage.words[1]:
        verb, words = usage.line.split()[1], " ".join(found.words) or None
        raise RecipeError.of(verb, words, f"needs {usage.takes}", usage.example)
    return found


def _unknown(name: str, value: str, usage: Usage) -> Problem:
    key = name.lstrip("-").replace("-", "_")
    command = " ".join(usage.line.split()[:2])
    if "RUN|FILE" in usage.line and key in RUNS:
        return Problem(f"{name} {value}", None, "needs no flag", f"{command} {value or 'RUN'}")
    if "IMAGE" in usage.line and key in IMAGES:
        return Problem(f"{name} {value}", None, "needs no flag", f"{command} RUN {value}")
    if FLAGS.get(key) in usage.values:
        return Problem(name, None, "unknown flag", f"{FLAGS[key]} {value}".strip())
    if "option=value" in usage.line:
        options = re.findall(r"([a-z_]+)=", usage.more)
        meant = did_you_mean(key, options, f"={value}")
        fix = meant or f"options: {', '.join(options)}"
        return Problem(name, None, "unknown flag; options are written option=value", fix)
    if usage.has_settings and (meaning := meaning_of(name, value)):
        rule = meaning.rule or "unknown flag; settings are written key=value"
        return Problem(f"{name} {value}".strip(), None, rule, meaning.words or "leave it out")
    if meant := did_you_mean(name, usage.values):
        return Problem(name, None, "unknown flag", meant)
    if usage.has_settings and key and value:
        # imports torch, which takes seconds
        from resnet_recipes.recipe.overrides import parse

        word = f"{key}={value}"
        fix = next((problem.fix for problem in parse([word])[1]), shlex.quote(word))
        rule = "unknown flag; settings are written key=value"
        return Problem(f"{name} {value}", None, rule, fix)
    return Problem(name, None, "unknown flag", f"flags: {', '.join([*usage.values, '--help'])}")


def _is_utf8(word: str) -> bool:
    """Return whether a word can be written to a run's files.

    Bytes that are not text arrive as lone surrogates.
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def _spaced(words: Sequence[str], has_settings: bool) -> list[Problem]:
    """Return a problem for each setting that spaces, instead of or around '=', have split."""
    for word, value in pairwise(words):
        if has_settings and word in SHORT and "=" not in value:
            fix = shlex.quote(f"{word}={value}")
            return [Problem(f"{word} {value}", None, "settings are written key=value", fix)]
    pairs = re.findall(r"(?:^|\0)([\w.]+)(?:\0=\0?|=\0)([^\0=]+)(?=\0|$)", "\0".join(words))
    return [
        Problem(f"{key} = {value}", None, "has spaces around '='", shlex.quote(f"{key}={value}"))
        for key, value in pairs
    ]
