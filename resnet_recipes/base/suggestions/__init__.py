"""Suggest the likely intention of a user: a similar name, or the meaning of a foreign name.

The tables foreign_names.csv and foreign_values.csv map names from timm, torchvision references,
Lightning, Ultralytics, Composer, Hydra, Hugging Face, Keras and fastai. They also map common
habits, and units that users add to values.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.base.errors import Change, Command, Hint, Kind, Problem, Value, quote
from resnet_recipes.base.names import get_full_name

#: In a word with fewer letters, only an extra letter counts as a typo.
MIN_TYPO_LETTERS = 3

#: Foreign names with fewer letters are only matched exactly.
MIN_SIMILAR_LETTERS = 4


class Translation(NamedTuple):
    """The words to type here, and a note for users of other programs."""

    #: not quoted; {} is the value; rows of jobs use {flag} and {count}
    words: tuple[str, ...]
    note: str = ""

    @property
    def text(self) -> str:
        """The words as a line, not quoted."""
        return " ".join(self.words)

    @property
    def command(self) -> str:
        """The words as typed in a shell."""
        return " ".join(map(quote, self.words))

    @property
    def takes_value(self) -> bool:
        """Whether the words contain a place for a value."""
        return "{}" in self.text.replace("{{}}", "")

    @property
    def has_placeholder(self) -> bool:
        """Whether the words contain a placeholder that the user has to replace."""
        return bool(_PLACEHOLDER.search(self.text))


def _read_table(name: str) -> dict[str, dict[str, Translation]]:
    """Return the translations of a CSV file, by the first column and the foreign word."""
    table = defaultdict[str, dict[str, Translation]](dict)
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    for key, words, ours, note in rows:
        table[key] |= dict.fromkeys(words.split(), Translation(tuple(ours.split()), note))
    return table


FOREIGN_NAMES = _read_table("foreign_names.csv")

#: Foreign flags and keys that mean a setting or an argument.
TRANSLATIONS = FOREIGN_NAMES["setting"]

_OFF_TRANSLATIONS = FOREIGN_NAMES["off"]

#: Keys with another meaning for a trained network: sizes are its evaluation sizes.
TRAINED_TRANSLATIONS = TRANSLATIONS | FOREIGN_NAMES["trained"]

#: Keys with another meaning for a network of timm: arguments of the network.
TIMM_TRANSLATIONS = TRANSLATIONS | FOREIGN_NAMES["timm"]

UNITS = FOREIGN_NAMES["unit"]

FOREIGN_COMMANDS = FOREIGN_NAMES["command"]

#: Flags of Slurm and other engines, by name; names of one letter differ by case.
JOB_FLAGS = FOREIGN_NAMES["job"]

#: Foreign flags and keys that mean one of our flags; a command accepts at most one of the flags.
FLAGS = FOREIGN_NAMES["flag"]

TRAIN_FLAGS = FOREIGN_NAMES["train"]

#: Foreign flags for RUN, an argument of eval, predict and export.
RUN_FLAGS = FOREIGN_NAMES["run"]

#: Foreign flags for the run of a command without settings, such as `stop`.
ARGUMENT_FLAGS = RUN_FLAGS | FOREIGN_NAMES["argument"]

IMAGE_FLAGS = FOREIGN_NAMES["images"]

#: Foreign names of values, by setting, flag or argument.
FOREIGN_VALUES = _read_table("foreign_values.csv")

#: Values that turn a feature off; 0 may also be a number.
OFF = ("false", "no", "off", "none", "null", "disable", "disabled", "never", "0")

#: Advice for an unknown setting of a trained network.
SETTINGS_HELP = Hint("resnet-recipes eval --help   lists the settings of a network")

#: Placeholder, in capitals or `...`, that the user has to replace.
_PLACEHOLDER = re.compile(r"[= ]\[?[A-Z]+(?=[,\] ]|$)|\.NAME=| \.\.\. ")


#: An argument that sets a setting.
SETTING = re.compile(r"[a-z][\w.]*=.*")


def apply_translation(problem: Problem, translation: Translation) -> Problem:
    """Return a problem with the intended setting or value added."""
    words, note = translation
    if not words:
        return problem._replace(fix=Hint(note))
    fix: str = translation.command
    if translation.has_placeholder:
        fix = Hint(fix)
    elif words[0] == "resnet-recipes":
        fix = Command(fix)
    elif len(words) == 1 and (words[0][0] == "~" or SETTING.fullmatch(words[0])):
        change = Change(words[0])
        is_other_value = problem.value is not None and change.key == problem.key
        fix = Value(change.value) if is_other_value and change.value else change
    return problem._replace(fix=(fix, Hint(note)) if note else fix)


def suggest_printing_settings(recipe: str = "mild") -> Hint:
    """Return a hint with the command that prints every setting."""
    return Hint(f"resnet-train {recipe} --cfg   prints every setting")


def translate_key(problem: Problem) -> Problem:
    """Return the problem of an unknown recipe setting, with the translation of its name."""
    translation = translate(problem.key, str(problem.value or ""))
    if translation is None:
        return problem._replace(fix=suggest_printing_settings())
    if translation.text.startswith("-"):
        translation = Translation((), f"on the command line: {translation.text}")
    return apply_translation(problem, translation)


def make_unknown_problem(noun: str, name: str, names: Collection[str]) -> Problem:
    """Return the problem that no `noun` is called `name`, with the most similar of `names`."""
    near = find_closest(name, names) or find_part(name, names)
    return Problem(name, None, f"unknown {noun}", near, tuple(names), Kind.UNKNOWN)


def guess_flag_value(flag: str, value: str, valid: Collection[str]) -> str:
    """Return the valid value of a flag that `value` stands for or misspells, or ""."""
    translation = FOREIGN_VALUES.get(flag, {}).get(value.lower())
    likely_name = translation.text if translation else find_misspelled(value, valid)
    return likely_name and Value(likely_name)


def find_closest(name: str, names: Iterable[str]) -> str:
    """Return the known dotted name that `name` stands for or misspells, or ""."""
    joined = name.lower().replace(".", "_")
    names = list(names)
    leaf = joined if joined in TRANSLATIONS else _get_leaf(name.lower())
    misspelled = find_misspelled(name, names)
    translation = TRANSLATIONS.get(leaf)
    if translation and not translation.words and leaf == name.lower() and name not in names:
        return ""  # it means no setting, or one of several
    if translation and leaf not in map(_get_leaf, names):
        words = [leaf]
    else:
        words = [] if misspelled else _find_nearest_names(leaf, TRANSLATIONS)
    for word in words:
        key, equals, _ = TRANSLATIONS[word].text.partition("=")
        if equals and get_full_name(key) in names:
            return get_full_name(key)
    return misspelled


def find_part(name: str, names: Iterable[str]) -> str:
    """Return the longest name that is part of `name`, or the first that starts with it, or ""."""
    part = name.lower()
    names = list(names)
    longer = [entry for entry in names if len(part) > 3 and entry.startswith(part)]
    parts = (entry for entry in names if len(entry) > 2 and entry in part)
    return max(parts, key=len, default=[*longer, ""][0])


def find_misspelled(name: str, names: Iterable[str]) -> str:
    """Return the known dotted name that `name` misspells; "" unless exactly one is close."""
    best = _find_nearest_names(name, names)
    return best[0] if len(best) == 1 else name if name in best else ""


def _find_nearest_names(name: str, names: Iterable[str]) -> list[str]:
    """Return the known names whose last part differs from `name` by at most two letters.

    Returns only the names with the fewest different letters and the most similar section.
    """
    name = name[:80].lower().replace("-", "_").replace("/", ".").replace(":", ".")
    section = name.rpartition(".")[0]
    leaf = _get_leaf(name)
    names_by_distance: dict[int, list[str]] = {}
    names = list(names)
    sections = {key.rpartition(".")[0] for key in names}
    for key in names:
        key_section = key.rpartition(".")[0]
        slips = _count_slips(leaf, _get_leaf(key), 4 if key_section == section != "" else 6)
        far = _count_slips(_get_leaf(section), _get_leaf(key_section), 6)
        # a setting of a method is not taken for one of another section
        of_method = key_section.startswith("methods.") or section.startswith("methods.")
        is_elsewhere = section not in ("", key_section) and (section in sections or far is None)
        if slips is None or (is_elsewhere and (of_method or slips)) or name.startswith(f"{key}."):
            continue
        names_by_distance.setdefault(slips + (3 if far is None else far), []).append(key)
    return names_by_distance[min(names_by_distance)] if names_by_distance else []


def _count_slips(typed: str, name: str, long: int) -> int | None:
    """Return the number of wrong letters in a name; None if it is a different word.

    Names of at least `long` letters may have two wrong letters. Words joined by "_" are compared
    one by one, so that layer_decay does not match weight_decay.
    """
    name = name.replace("-", "_")
    pairs = list(zip(typed.split("_"), name.split("_"), strict=False))
    max_slips = 2
    if typed.count("_") != name.count("_"):
        pairs = [(typed.replace("_", ""), name.replace("_", ""))]
        max_slips = 1
    if typed.removeprefix("un").removeprefix("no").lstrip("_") == name != typed:
        return None  # the opposite setting
    count = 0
    for left, right in pairs:
        edits = _count_edits(left, right)
        size = min(len(left), len(right))
        is_other = size < MIN_TYPO_LETTERS and len(left) <= len(right)
        is_other = is_other or (size <= 4 and sorted(left[:1]) != sorted(right[:1]) and edits > 0)
        if edits > (2 if size >= long else 1) or (edits and is_other):
            return None
        count += edits
    return count if count <= max_slips else None


def _count_edits(typed: str, name: str) -> int:
    """Return how many letters are missing, wrong, too many or swapped, at most 3."""
    if abs(len(typed) - len(name)) > 2:
        return 3
    before = [0] * (len(name) + 1)
    above = list(range(len(name) + 1))
    for row, letter in enumerate(typed, 1):
        here = [row]
        for column, other in enumerate(name, 1):
            cost = min(above[column] + 1, here[-1] + 1, above[column - 1] + (letter != other))
            if row > 1 and column > 1 and (letter, typed[row - 2]) == (name[column - 2], other):
                cost = min(cost, before[column - 2] + 1)
            here.append(cost)
        before, above = above, here
    return min(above[-1], 3)


def translate(
    name: str, value: str, exactly: bool = True, table: Mapping[str, Translation] = TRANSLATIONS
) -> Translation | None:
    """Return the translation of a foreign flag or key with its value; None if unknown.

    Unless `exactly` is set, the name may be misspelled.
    """
    key = name.lstrip("-").lower().replace("-", "_")
    leaf = _get_leaf(key)
    words = [word for word in (key.replace(".", "_"), leaf) if word in table][:1]
    if len(leaf) == 1 and "." in key:  # -a and -b are flags only without a dot
        words = []
    if not words and not exactly and len(leaf) >= MIN_SIMILAR_LETTERS:
        words = _find_nearest_names(leaf, table)
    if len({table[word] for word in words}) != 1:
        return None
    word = words[0]
    translation = table[word]
    text, note = translation.text, translation.note
    method = re.match(r"methods\.\w+", text)
    if value.lower() in OFF and word in _OFF_TRANSLATIONS:
        return _OFF_TRANSLATIONS[word]
    if value.lower() in OFF and method:
        return Translation((f"~{method[0]}",), "'~methods.NAME' turns a method off")
    if value.lower() in OFF[:-1]:
        unset = Translation((), note or "remove it: it is off by default")
        return None if translation.takes_value else unset
    if translation.takes_value and value in ("", "{}"):
        value, note = "VALUE", note or "needs a value"
    if not value.replace(".", "", 1).isdecimal():  # the value already has a unit
        text = re.sub(r"(?<=\{\})(ep|ba|dur|s|h)\b", "", text)
    setting = get_full_name(re.split("[ =]", text)[0])
    values = FOREIGN_VALUES.get(word, FOREIGN_VALUES.get(setting, {}))
    ours = values.get(value.lower()) if "{" in text else None
    if setting == "methods.randaugment" and (magnitude := re.search(r"-m(\d+)", value)):
        layers = re.search(r"-n(\d+)", value)  # rand-m9-n3-mstd0.5 of timm, with 2 by default
        depth = layers[1] if layers else 2
        words = [f"{setting}.severity={magnitude[1]}", f"{setting}.depth={depth}"]
        return Translation(tuple(words), note)
    value = value.strip("[]()") if "[{}]" in text else value
    if ours:
        return Translation(ours.words, ours.note or note)
    return Translation(tuple(word.format(value) for word in text.split()), note)


def _get_leaf(name: str) -> str:
    return name.rpartition(".")[2]
