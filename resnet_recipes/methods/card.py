"""What is known about a method, read from its class: what it does, what it costs, what it brings, what its settings are."""

import inspect
import re
from dataclasses import fields
from typing import NamedTuple

from resnet_recipes.methods.base import HOOKS, Method

_PART = re.compile(r"\b(Cost|Gain|Hurts): ")


class Setting(NamedTuple):
    """One hyperparameter."""

    name: str
    default: object
    meaning: str          # the comment at the end of its line: unit, range, choices


class Card(NamedTuple):
    """One method, for a person to read; every text is one paragraph on one line."""

    name: str
    summary: str          # one sentence with its paper
    details: str          # what it does precisely, and where it differs from its source
    cost: str
    gain: str             # as measured by others, with the source
    hurts: str            # when to leave it out
    settings: tuple[Setting, ...]
    hooks: tuple[str, ...]        # where it acts with its default settings, in the order in which a run gets there
    excludes: tuple[str, ...]     # methods that it cannot be combined with


def card_of(method: type[Method]) -> Card:
    """Return the card of a method."""
    summary, _, body = inspect.cleandoc(method.__doc__ or "").partition("\n")
    details, *parts = _PART.split(" ".join(body.split()))
    texts = dict(zip(parts[::2], (text.strip() for text in parts[1::2]), strict=True))
    comments = dict(re.findall(r"^    (\w+): [^#\n]* = [^#\n]*# (.*)$", inspect.getsource(method), re.MULTILINE))
    return Card(
        name=method.name, summary=summary, details=details.strip(), cost=texts["Cost"], gain=texts["Gain"], hurts=texts["Hurts"],
        settings=tuple(Setting(item.name, item.default, comments.get(item.name, "")) for item in fields(method)),
        hooks=tuple(hook for hook in HOOKS if method().provides(hook)), excludes=tuple(sorted(method.conflicts)),
    )
