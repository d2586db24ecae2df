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
        if found.keys() != _TYPES.keys() or any(
            type(found[key]) is not kind for key, kind in _TYPES.items()
        ):
            raise ValueError("missing or unknown fields")
        if found["backend"] not in BACKENDS[1:] or not all(
            isinstance(name, str) for name in found["classes"]
        ):
            raise ValueError("an unknown backend, or class names that are not text")
        if not all(type(count) is int for count in found["class_images"]):
            raise ValueError("counts of images that are not whole numbers")
    except ValueError as error:
        raise unreadable(path, error) from None
    lists = {name: tuple(found[name]) for name in ("classes", "class_images")}
    return DataFacts(root=Path(root), **found | lists)
