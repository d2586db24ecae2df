"""What words of other programs are here, by the table answers.csv, with their values in place.

They are of timm, torchvision's references, Lightning, Ultralytics, Composer, Hydra, Hugging Face,
Keras and fastai, and of habit.
"""

import csv
import re
import shlex
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from resnet_recipes.recipe.short import targets


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

#: Flags and keys for a setting, or for a word of our commands.
MEANINGS = _of("setting")

#: Values of the settings that have other names elsewhere, by how the setting is typed.
VALUES = {
    "precision.dtype={}": _of("dtype"),
    "launch.device={}": _of("device"),
    "gpus={}": _of("gpus"),
    "model.weights={}": _of("weights"),
}

#: Commands, and formats of `export`: those of others, or those that their converters read.
VERBS, FORMATS = _of("verb"), _of("format")

#: Flags of ours, of which a command has at most one.
FLAGS = _of("flag")

#: Flags for what are words of their own in eval, predict and export: RUN, and its images.
RUNS, IMAGES = _of("run"), _of("images")

_ON = ("true", "yes", "on", "1")
_OFF = ("false", "no", "off", "none", "null")
_GPU_IDS = r"(cuda:)?\d+(,\d+)*,?"
_DEVICE, _GPUS, _WEIGHTS = "launch.device={}", "gpus={}", "model.weights={}"


def meaning_of(name: str, value: str | None) -> Meaning | None:
    """Return what a foreign flag or key means, with its value in place; None if it is unknown."""
    whole = name.lstrip("-").lower().replace("-", "_")
    leaf = whole.rpartition(".")[2]
    known = [word for word in (whole.replace(".", "_"), leaf) if word in MEANINGS]
    known = known or get_close_matches(leaf, MEANINGS, n=1, cutoff=0.9)
    if not known:
        return None
    (words, rule), value = MEANINGS[known[0]], value or ""
    if not words:
        return Meaning("", rule)
    if value.lower() in _OFF or (words.startswith("methods.") and value in ("0", "0.0")):
        return _turned_off(words, rule)
    # a number is how many GPUs there are, but for these it names one
    names_one = words == _DEVICE or leaf in ("gpu", "gpu_ids") or "," in value
    if words == _GPUS and value == "0" and not names_one:
        return Meaning("launch.device=cpu", "a run without GPUs uses the CPU")
    if words in (_DEVICE, _GPUS) and names_one and re.fullmatch(_GPU_IDS, value):
        ids = value.removeprefix("cuda:").rstrip(",")
        words = f"CUDA_VISIBLE_DEVICES={ids} resnet-train ... gpus={ids.count(',') + 1}"
        return Meaning(words, "an environment variable says which GPUs, gpus= how many")
    if value.lower() in _ON and re.fullmatch(r"methods\.\w+\.\w+=\{\}", words):
        words = f"{words.rpartition('.')[0]}={{{{}}}}"
    elif "{}" in words.replace("{{}}", "") and not value:
        return Meaning(words.format("VALUE"), "needs a value")
    ours = VALUES.get(words, {}).get(value.lower())
    value, rule = (ours.words, ours.rule or rule) if ours else (_ours(words, value), rule)
    if not value.replace(".", "", 1).isdecimal():
        words = re.sub(r"(?<=\{\})(ep|ba|dur|s)\b", "", words)  # it has a unit of its own
    return Meaning(" ".join(shlex.quote(word.format(value)) for word in words.split(" ")), rule)


def setting_of(word: str) -> str:
    """Return the setting that a foreign or a short word is for; "" if it is for none."""
    words = MEANINGS[word].words if word in MEANINGS else f"{word}={{}}"
    key, equals, _ = words.partition("=")
    return targets(key, "1")[0].partition("=")[0] if equals and " " not in words else ""


def _turned_off(words: str, rule: str) -> Meaning:
    """Return how to turn off what `words` turns on."""
    if words == "precision.dtype=auto":
        return Meaning("precision.dtype=fp32")
    if words == _WEIGHTS:
        return Meaning("model.weights=")
    if words.startswith("precision."):
        return Meaning(f"{words.partition('=')[0]}=false")
    if method := re.match(r"methods\.\w+", words):
        return Meaning(f"'~{method[0]}'", "a method is turned off by its name")
    return Meaning("", rule or "is off unless it is asked for")


def _ours(words: str, value: str) -> str:
    """Return our spelling of the value that `words` takes."""
    if words == _WEIGHTS:
        return re.sub("^timm/", "timm:", value)
    if words == "--resume {}" and value.lower() in _ON:
        return "last"
    if words == "data.train_size={}" and (number := re.search(r"\d+", value)):
        return number[0]
    return value
