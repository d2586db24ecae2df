"""What a person most likely meant: a name like one of ours, or a word of another program.

The table answers.csv has the words of timm, torchvision's references, Lightning, Ultralytics,
Composer, Hydra, Hugging Face, Keras and fastai, of habit, and the units that values are typed with.
"""

import csv
import re
import shlex
from collections.abc import Collection, Iterable
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.errors import Kind, Problem
from resnet_recipes.recipe.short import targets

EVERY_SETTING = "resnet-train mild --cfg   prints every setting"
LEAVE_OUT = "leave it out"
SHORT = 3  # letters of a name in which a wrong first one is no slip


class Meaning(NamedTuple):
    """What to type, and what a reader from elsewhere should know."""

    words: str  # with {} for the value
    rule: str = ""


def _of(kind: str) -> dict[str, Meaning]:
    """Return what words of a kind mean, by word."""
    return {
        word: Meaning(row["here"], row["rule"])
        for row in _ROWS
        if row["kind"] == kind
        for word in row["there"].split()
    }


with Path(__file__).with_name("answers.csv").open(encoding="utf-8", newline="") as _file:
    _ROWS = list(csv.DictReader(_file))

#: Flags and keys for a setting or for a word of our commands, and those that are switched off.
MEANINGS, _OFF_MEANINGS = _of("setting"), _of("off")

#: Values with other names elsewhere, by our setting; and units, with the values that they make.
VALUES, UNITS = {row["kind"]: _of(row["kind"]) for row in _ROWS}, _of("unit")

#: Commands, and formats of `export`: those of others, or those that their converters read.
VERBS, FORMATS = _of("verb"), _of("format")

#: Flags of ours, of which a command has at most one.
FLAGS = _of("flag")

#: Flags for what are words of their own in eval, predict and export: RUN, and its images.
RUNS, IMAGES = _of("run"), _of("images")

ON = ("true", "yes", "on", "1")
OFF = ("false", "no", "off", "none", "null", "0")


def unknown(noun: str, name: str, known: Collection[str]) -> Problem:
    """Return the problem of a name that is none of those that are known."""
    return Problem(name, None, noun, closest(name, known), tuple(known), Kind.UNKNOWN)


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known dotted name that is most like `name`, or ""."""
    leaf, known = _leaf(name.lower()), list(known)
    key, equals, _ = MEANINGS.get(leaf, Meaning("")).words.partition("=")
    meant = targets(key, "1")[0].partition("=")[0] if equals else ""
    is_foreign = meant in known and leaf not in map(_leaf, known)
    return meant if is_foreign else next(iter(near(name, known)), "")


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return the known dotted names that are like `name`, the likeliest first."""
    name = name[:80].lower()
    leaf = _leaf(name)
    known = [key for key in known if not name.startswith(f"{key}.")]  # not its own section
    alike = [key for key in known if len(name) > SHORT or key[:1] == name[:1]]
    whole = get_close_matches(name, alike, cutoff=0.72)
    swapped = [key for key in alike if sorted(key) == sorted(name)]
    leaves = get_close_matches(leaf, {*map(_leaf, known)}, n=len(known) or 1, cutoff=0.8)
    same = [key for key in known if _leaf(key) in leaves]
    same.sort(key=lambda key: SequenceMatcher(None, key, name).ratio(), reverse=True)
    return [*whole, *swapped, *same]


def meaning_of(name: str, value: str) -> Meaning | None:
    """Return what a foreign flag or key means, with its value in place; None if it is unknown."""
    whole = name.lstrip("-").lower().replace("-", "_")
    leaf = _leaf(whole)
    known = [word for word in (whole.replace(".", "_"), leaf) if word in MEANINGS]
    known = known or get_close_matches(leaf, MEANINGS, n=1, cutoff=0.9)
    if not known:
        return None
    words, rule = MEANINGS[known[0]]
    method = re.match(r"methods\.\w+", words)
    if value.lower() in OFF and method:
        return Meaning(f"'~{method[0]}'", "a method is turned off by its name")
    if value.lower() in OFF[:-1]:
        return _OFF_MEANINGS.get(known[0], Meaning("", rule or "is off unless it is asked for"))
    if "{}" in words.replace("{{}}", "") and not value:
        return Meaning(words.format("VALUE"), "needs a value")
    if not value.replace(".", "", 1).isdecimal():
        words = re.sub(r"(?<=\{\})(ep|ba|dur|s)\b", "", words)  # it has a unit of its own
    ours = VALUES.get(re.split("[ =]", words)[0], {}).get(value.lower())
    value = re.sub("^timm/", "timm:", value)
    filled = [shlex.quote(word.format(value)) for word in words.split()]
    return Meaning(ours.words if ours else " ".join(filled), (ours and ours.rule) or rule)


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]
