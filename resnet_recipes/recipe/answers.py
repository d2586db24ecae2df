"""What words of other programs are here: the table answers.csv, by kinds of words.

They are of timm, torchvision's references, Lightning, Ultralytics, Composer, Hydra, Hugging Face,
Keras and fastai, and of habit.
"""

import csv
from pathlib import Path
from typing import NamedTuple


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
