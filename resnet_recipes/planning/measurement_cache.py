"""The speeds that earlier commands measured on this machine, in the cache folder."""

import hashlib
import json
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from resnet_recipes import __version__
from resnet_recipes.base import atomic
from resnet_recipes.base.cores import count_cores
from resnet_recipes.base.paths import get_cache_folder
from resnet_recipes.planning.estimate import Speeds


def make_key(facts: Mapping[str, object]) -> str:
    """Return the key of stored speeds, from the machine, the version and `facts`."""
    content = {
        **{name: str(value) for name, value in facts.items()},
        "host": platform.node(),
        "cores": count_cores(),
        "resnet-recipes": __version__,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


class Measurement(NamedTuple):
    """Speeds measured by an earlier command."""

    speeds: Speeds
    when: float  # seconds since 1970


def read_measurement(key: str) -> Measurement | None:
    """Return an earlier measurement; None if it is missing or damaged."""
    try:
        value = json.loads(_get_path(key).read_bytes())
        return Measurement(Speeds.from_json(value["speeds"]), float(value["when"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_measurement(key: str, speeds: Speeds) -> None:
    """Store speeds for later commands, if the cache folder can be written."""
    with suppress(OSError):
        _get_path(key).parent.mkdir(parents=True, exist_ok=True)
        atomic.write_text(
            _get_path(key), json.dumps({"speeds": asdict(speeds), "when": time.time()})
        )


def _get_path(key: str) -> Path:
    return get_cache_folder() / "speeds" / f"{key}.json"
