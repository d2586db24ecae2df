"""The card of a method or an optimizer, read from its class."""

import ast
import inspect
import itertools
import textwrap
from dataclasses import MISSING, Field, fields
from typing import NamedTuple


class Setting(NamedTuple):
    """One hyperparameter."""

    name: str
    default: object
    meaning: str  # the comment of its field: unit, range, choices

    @property
    def default_text(self) -> str:
        """The default as written on a command line."""
        if isinstance(self.default, list | tuple):
            return f"[{','.join(map(str, self.default))}]"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return "null" if self.default is None else str(self.default)


class Card(NamedTuple):
    """The description of a class. Each text is on one line."""

    name: str
    summary: str  # one sentence with its paper
    details: tuple[str, ...]  # paragraphs: the definition, and the differences from the source
    cost: str
    gain: str  # published gains, with the source
    avoid_when: str  # when to omit the method
    settings: tuple[Setting, ...]


def make_card(cls: type) -> Card:
    """Return the card of a dataclass with `name`, `cost`, `gain`, `avoid_when` and a docstring."""
    summary, _, details = inspect.cleandoc(cls.__doc__ or "").partition("\n")
    paragraphs = tuple(" ".join(text.split()) for text in details.strip().split("\n\n"))
    settings = tuple(setting for setting in list_settings(cls) if setting.name != "name")
    return Card(cls.name, summary, paragraphs, cls.cost, cls.gain, cls.avoid_when, settings)


def list_settings(cls: type) -> tuple[Setting, ...]:
    """Return the fields of a dataclass, in order."""
    meanings = {}
    for owner in reversed(cls.__mro__[:-1]):
        meanings |= _find_comments(inspect.getsource(owner))
    return tuple(
        Setting(item.name, _get_default(item), meanings.get(item.name, "")) for item in fields(cls)
    )


def _get_default(item: Field) -> object:
    return item.default if item.default_factory is MISSING else item.default_factory()


def _find_comments(source: str) -> dict[str, str]:
    """Return the comment of each field of a class: at the end of its lines, or just above."""
    lines = textwrap.dedent(source).splitlines()
    comments = {}
    for node in ast.parse("\n".join(lines)).body[0].body:
        if isinstance(node, ast.AnnAssign):
            _, _, comment = lines[node.end_lineno - 1].partition("  # ")
            comments[node.target.id] = comment or " ".join(
                _find_comment_above(lines[: node.lineno - 1])
            )
    return {name: comment for name, comment in comments.items() if comment}


def _find_comment_above(lines: list[str]) -> list[str]:
    """Return the comment that ends with the last of `lines`."""
    above = itertools.takewhile(lambda line: line.startswith("    # "), reversed(lines))
    return [line.removeprefix("    # ") for line in above][::-1]
