"""Measured speeds, remembered for each machine, software and recipe."""

import hashlib
import json
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from resnet_recipes import __version__
from resnet_recipes.base import atomic
from resnet_recipes.base.cores import cores
from resnet_recipes.base.paths import cache_folder
from resnet_recipes.estimating.estimate import Speeds


class Remembered(NamedTuple):
    """Speeds with the time at which they were measured."""

    speeds: Speeds
    when: float  # seconds since the epoch


def key_of(facts: Mapping[str, object]) -> str:
    """Return the name under which speeds are kept.

    It changes with the machine, the version and any of `facts`.
    """
    everything = {
        **{name: str(value) for name, value in facts.items()},
        "host": platform.node(),
        "cores": cores(),
        "resnet-recipes": __version__,
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:24]


def recall(key: str) -> Remembered | None:
    """Return what was measured before; None if nothing was, or the record is damaged."""
    try:
        value = json.loads(_path(key).read_bytes())
        return Remembered(Speeds.of_json(value["speeds"]), float(value["when"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remember(key: str, speeds: Speeds) -> None:
    """Keep speeds for the next time.

    If the home folder cannot be written to, they are forgotten.
    """
    try:
        _path(key).parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(_path(key), json.dumps({"speeds": asdict(speeds), "when": time.time()}))
    except OSError:
        return


def _path(key: str) -> Path:
    return cache_folder() / "speeds" / f"{key}.json"
