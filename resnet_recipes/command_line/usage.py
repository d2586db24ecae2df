"""What a command accepts, and its help page."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from resnet_recipes.base.text import wrap_text

WIDTH = 80  # columns of a help page in the documentation
NARROW_COLUMNS = 60  # narrower pages have texts under their labels

#: Flags and descriptions of RUN that several pages share.
RECIPES = {"--recipes FOLDER": "folder of your own recipes (default ./recipes)"}
CSV = {"--csv FILE.csv": "also write the table as CSV"}
JSON = {"--json": "print JSON"}
RUN_HELP = "RUN is a run folder, the name of a run in ./runs, or `last`, the most recent run."


class Scope(Enum):
    """What the key=value arguments of a command set."""

    RECIPE = "recipe"
    NETWORK = "network"  # of the run or file that the first argument names
    OPTIONS = "options"  # of the command itself


@dataclass(frozen=True)
class Usage:
    """The arguments of a command, and its help page."""

    line: str  # "resnet-recipes cp NAME FILE"
    about: str  # one sentence
    example: str  # a complete command that works
    flags: Mapping[str, str] = field(default_factory=dict)  # "--recipes FOLDER": "your own recipes"
    more: str = ""  # paragraphs after the flags; wrapped unless they contain indented lines
    positional: tuple[int, int] = (0, sys.maxsize)  # least and most positional arguments
    positional_text: str = ""  # the positional arguments in words: "two recipes or run folders"
    settings: Scope | None = None  # what key=value arguments set; None if there are none
    needs_recipe: bool = True  # whether a command with recipe settings requires a recipe
    takes_images: bool = False  # whether the other arguments are images

    @property
    def command(self) -> list[str]:
        """The words of the command: "resnet-recipes", "cp"."""
        words = self.line.split()
        return words[:1] if words[0] == "resnet-train" else words[:2]

    @property
    def takes_recipe(self) -> bool:
        """Whether the arguments are a recipe and its settings."""
        return self.settings is Scope.RECIPE

    @property
    def opens_network(self) -> bool:
        """Whether the first argument is RUN|FILE."""
        return self.settings is Scope.NETWORK

    @property
    def placeholders(self) -> dict[str, str]:
        """The placeholder of the value of each flag: "FOLDER", or "" if the flag takes none."""
        return {name: value for name, _, value in (flag.partition(" ") for flag in self.flags)}

    def format_page(self, width: int = WIDTH) -> str:
        """Return the help page, `width` columns wide."""
        rows = dict(self.flags) | {"--help": "print this page"}
        parts = [
            "\n".join(wrap_text(self.line, width, rest="    ")),
            "\n".join(wrap_text(f"{self.about[:1].upper()}{self.about[1:]}.", width)),
            "\n".join(format_row(*item, width=width) for item in rows.items()),
            *(_fit(text, width) for text in self.more.strip("\n").split("\n\n")),
            f"Example:\n  {self.example}",
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def _fit(text: str, width: int) -> str:
    """Return a paragraph wrapped to `width`; if it has indented rows, wrap only the long rows."""
    if "\n  " not in text:
        return "\n".join(wrap_text(" ".join(text.split()), width))
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if len(line) > width and (parts := re.fullmatch(r"( *)(.*\S)  +(\S.*)", line)):
            lines[index] = format_row(parts[2], parts[3], len(parts[1]), width=width)
    return "\n".join(lines)


def format_row(label: str, text: str, indent: int = 2, column: int = 22, width: int = WIDTH) -> str:
    """Return a row of a help page: a label, with wrapped text to its right."""
    column = column if width >= NARROW_COLUMNS else indent + 4
    head = f"{'':<{indent}}{label:<{column - indent}}"
    if len(head) == column and head.endswith("  "):
        return "\n".join(wrap_text(text, width, head, " " * column))
    above = wrap_text(label, width, " " * indent, " " * (indent + 8))
    return "\n".join([*above, *wrap_text(text, width, " " * column, " " * column)])
