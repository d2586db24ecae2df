"""What a user types after the recipe's name: `optimizer.lr=1.0`, `~methods.ema`, `epochs=18`."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple, get_args

from resnet_recipes.composing.suggestions import did_you_mean
from resnet_recipes.composing.typed import is_union
from resnet_recipes.errors import Problem
from resnet_recipes.paths import typed_path

#: Short spellings, and what they stand for. A value goes where {} stands.
SHORT = {
    "epochs": ("max_duration={}ep", "scale_schedule_ratio=1.0"),
    "ssr": ("scale_schedule_ratio={}",),
    "lr": ("optimizer.lr={}",),
    "wd": ("optimizer.weight_decay={}",),
    "bs": ("batch.global_size={}",),
    "gpus": ("launch.gpus={}",),
    "data": ("data.root={}",),
    "run": ("run.name={}",),
    "workers": ("data.workers={}",),
}

#: Settings that are folders: `~` is expanded and the path made absolute.
FOLDERS = ("data.root", "run.root")

MAX_LENGTH = 4096
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*")
_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?")


class Override(NamedTuple):
    """One setting that a user changed."""

    typed: str            # the word as it was typed: "epochs=18"
    key: str              # "max_duration"
    value: str | None     # "18ep"; None: the method, or the optimizer's setting, is removed

    def __str__(self) -> str:
        return f"~{self.key}" if self.value is None else f"{self.key}={self.value}"

    def for_hydra(self, kind: Any) -> str:
        """Return the override in Hydra's grammar: it may add what is not there yet, and text of a text setting is taken literally."""
        if self.value is None:
            return f"++{self.key}=null"
        takes_text = kind is str or (is_union(kind) and str in get_args(kind) and not _NUMBER_OR_NULL.fullmatch(self.value))
        return f"++{self.key}={_quoted(self.value) if takes_text else self.value}"


_NUMBER_OR_NULL = re.compile(r"null|[-+]?[0-9][0-9_]*(\.[0-9]*)?([eE][-+]?[0-9]+)?")


def parse(words: Iterable[str], kinds: dict[str, Any]) -> tuple[list[Override], list[Problem]]:
    """Return what the words change, and what is wrong with them; `kinds` has the type of every setting."""
    overrides: list[Override] = []
    problems: list[Problem] = []
    for word in words:
        if problem := _refused(word):
            problems.append(problem)
        elif word.startswith("~"):
            overrides.append(Override(word, word[1:].split("=")[0], None))
        else:
            overrides += _expanded(word)
    for override in overrides:
        problems += _unknown(override, kinds)
    shorts = {word.split("=")[0] for word in words}
    if {"epochs", "ssr"} <= shorts:
        problems.append(Problem("epochs", None, "sets the length itself, so ssr= cannot stretch it too", "leave one of them out"))
    return overrides, problems


def _refused(word: str) -> Problem | None:
    """Return why a word is not an override, with the right spelling."""
    key, equals, value = word.partition("=")
    if len(word) > MAX_LENGTH or any(ord(char) < 32 for char in word):
        return Problem(key[:40], None, f"must be one line of at most {MAX_LENGTH} characters")
    if key.lstrip("+~").split(".")[0].split("/")[0].split("@")[0] == "hydra":
        return Problem(word, None, "Hydra itself cannot be configured from here", "leave it out")
    if word.startswith("+"):
        return Problem(word, None, "settings need no '+'", word.lstrip("+"))
    if word.startswith("~"):
        if re.fullmatch(r"~(methods|optimizer)\.[a-z][a-z0-9_]*", word):
            return None
        return Problem(word, None, "only a method or a setting of the optimizer can be removed", "~methods.ema")
    if not equals:
        return Problem(word, None, "settings are written key=value", f"recipe={word}" if _KEY.fullmatch(word) else "lr=0.5")
    if not _KEY.fullmatch(key):
        return Problem(word, None, "is not a setting: names are letters, digits and '_', joined by '.'", "optimizer.lr=0.5")
    if "${" in value:
        return Problem(key, value, "references are only read from recipe files", "write the value out")
    return None


def _expanded(word: str) -> list[Override]:
    """Return the overrides that one word stands for."""
    key, _, value = word.partition("=")
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    if key == "epochs" and not _DECIMAL.fullmatch(value):
        return [Override(word, "max_duration", value)]          # "epochs=90ep" is read as it is; anything else is refused as a duration
    pairs = [full.format(value).split("=", 1) for full in SHORT.get(key, (f"{key}={{}}",))]
    return [Override(word, full, absolute(full, given) if full in FOLDERS else given) for full, given in pairs]


def absolute(key: str, path: str) -> str:
    """Return a path that stays right in whatever folder it is read; empty stays empty."""
    return str(typed_path(key, path).absolute()) if path else path


def _unknown(override: Override, kinds: dict[str, Any]) -> list[Problem]:
    if override.key in kinds:
        return []
    if override.value is None:
        meant = did_you_mean(override.key, kinds).replace("mean ", "mean ~")
        return [Problem(override.typed, None, "no such method", meant or "resnet-recipes methods lists them")]
    meant = did_you_mean(override.key, kinds, f"={override.value}")
    return [Problem(override.typed, None, "no such setting", meant or "resnet-train recipe=mild --cfg prints every setting")]


def _quoted(text: str) -> str:
    """Quote text for Hydra's grammar, where a backslash is special only before a quote."""
    return "'" + re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + (r"\'" if match[2] else ""), text) + "'"
