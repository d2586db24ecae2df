"""The facts about a run's images as a file.

Written once by the launcher, checked by ranks when they open images.
"""

import json
from dataclasses import asdict
from pathlib import Path

from resnet_recipes.base.reading import read_json, unreadable
from resnet_recipes.data.base import BACKENDS, DataFacts
from resnet_recipes.run_folder.names import DATA

NAME = DATA

_TYPES = {
    "backend": str,
    "train_examples": int,
    "eval_examples": int,
    "classes": list,
    "train_digest": str,
    "eval_digest": str,
    "class_images": list,
}


def dump(facts: DataFacts) -> str:
    """Return the text of the file."""
    return json.dumps({key: asdict(facts)[key] for key in _TYPES}, indent=1) + "\n"


def load(path: Path, root: str) -> DataFacts:
    """Read the file of a run whose images are in `root`.

    Raises NotReadyError if it is not such a file.
    """
    try:
        found = read_json(path)
        if {key: type(value) for key, value in found.items()} != _TYPES:
            raise ValueError("missing or unknown fields")
        if found["backend"] not in BACKENDS[1:]:
            raise ValueError("an unknown backend")
        if {*map(type, found["classes"])} - {str} or {*map(type, found["class_images"])} - {int}:
            raise ValueError("class names that are not text, or counts that are not whole numbers")
    except ValueError as error:
        raise unreadable(path, error) from None
    lists = {name: tuple(found[name]) for name in ("classes", "class_images")}
    return DataFacts(root=Path(root), **found | lists)
