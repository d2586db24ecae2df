"""What is known about a method or an optimizer, read from its class."""

import inspect
import re
from dataclasses import fields
from typing import NamedTuple

_COMMENTED_FIELD = re.compile(r"^    (\w+): [^#\n]* = [^#\n]*# (.*)$", re.MULTILINE)


class Setting(NamedTuple):
    """One hyperparameter."""

    name: str
    default: object
    meaning: str          # the comment at the end of its line: unit, range, choices


class Card(NamedTuple):
    """A class as a person reads it; every text is one paragraph on one line."""

    name: str
    summary: str          # one sentence with its paper
    details: str          # what it does precisely, and where it differs from its source
    cost: str
    gain: str             # as measured by others, with the source
    hurts: str            # when to leave it out
    settings: tuple[Setting, ...]


def card_of(cls: type) -> Card:
    """Return the card of a dataclass with `name`, `cost`, `gain` and `hurts`; the rest is its docstring and its fields."""
    summary, _, details = inspect.cleandoc(cls.__doc__ or "").partition("\n")
    comments = dict(pair for base in reversed(cls.__mro__[:-1]) for pair in _COMMENTED_FIELD.findall(inspect.getsource(base)))
    settings = tuple(Setting(item.name, item.default, comments.get(item.name, "")) for item in fields(cls) if item.name != "name")
    return Card(cls.name, summary, " ".join(details.split()), cls.cost, cls.gain, cls.hurts, settings)
