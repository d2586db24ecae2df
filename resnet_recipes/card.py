"""What is known about a method or an optimizer, read from its class."""

import inspect
import re
from dataclasses import MISSING, fields
from typing import NamedTuple

_COMMENTED_FIELD = re.compile(r"^    (\w+): [^#\n]* = [^#\n]*# (.*)$", re.MULTILINE)


class Setting(NamedTuple):
    """One hyperparameter."""

    name: str
    default: object
    meaning: str          # the comment at the end of its line: unit, range, choices

    @property
    def written(self) -> str:
        """The default as one would type it."""
        if isinstance(self.default, list | tuple):
            return f"[{','.join(map(str, self.default))}]"
        return "null" if self.default is None else str(self.default).lower() if isinstance(self.default, bool) \
            else str(self.default)


class Card(NamedTuple):
    """A class described for people; every text is one paragraph on one line."""

    name: str
    summary: str          # one sentence with its paper
    details: str          # what exactly it does, and how it differs from its source
    cost: str
    gain: str             # as measured by others, with the source
    hurts: str            # when to leave it out
    settings: tuple[Setting, ...]


def card_of(cls: type) -> Card:
    """Return the card of a dataclass with `name`, `cost`, `gain` and `hurts`, a docstring and fields."""
    summary, _, details = inspect.cleandoc(cls.__doc__ or "").partition("\n")
    settings = tuple(setting for setting in settings_of(cls) if setting.name != "name")
    return Card(cls.name, summary, " ".join(details.split()), cls.cost, cls.gain, cls.hurts, settings)


def settings_of(cls: type) -> tuple[Setting, ...]:
    """Return the fields of a dataclass, in order."""
    sources = map(inspect.getsource, reversed(cls.__mro__[:-1]))
    comments = dict(pair for source in sources for pair in _COMMENTED_FIELD.findall(source))
    return tuple(Setting(item.name, item.default if item.default_factory is MISSING else item.default_factory(),
                         comments.get(item.name, "")) for item in fields(cls))
