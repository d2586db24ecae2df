"""The contract of a tracker, and the names of values in trackers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.reading import read_json
from resnet_recipes.run_folder import PROVENANCE
from resnet_recipes.run_folder.metrics import Record

#: Key of a record in metrics.jsonl -> its customary name in trackers.
METRIC_NAMES = {
    "step": {
        "loss": "train/loss",
        "lr": "train/lr",
        "pixels": "train/image_size",
        "images_per_second": "train/images_per_second",
        "data_wait_share": "train/data_wait_share",
        "training_seconds": "train/seconds",
    },
    "evaluation": {
        "ema_top1_percent": "val/ema_top1",
        "ema_top5_percent": "val/ema_top5",
        "ema_loss": "val/ema_loss",
        "ema_balanced_percent": "val/ema_balanced",
        "raw_top1_percent": "val/top1",
        "raw_top5_percent": "val/top5",
        "raw_loss": "val/loss",
        "raw_balanced_percent": "val/balanced",
    },
}


class Tracker(Protocol):
    """A service or file that receives the curves of a run."""

    def begin(self, settings: Mapping[str, object], step: int) -> None:
        """Start or continue the run's curves after `step` completed steps.

        `settings` are its hyperparameters.
        """

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Add one point to each of some curves."""

    def close(self, is_finished: bool) -> None:
        """Send the remaining values, and whether the run finished or was stopped."""


def make_tags(folder: Path) -> dict[str, str]:
    """Return the tags of a run: recipe, git commit, and version of resnet-recipes."""
    try:
        provenance = read_json(folder / PROVENANCE, may_be_absent=True)
    except NotReadyError:
        return {}
    texts = {key: provenance.get(key) for key in ("recipe", "git_commit", "resnet_recipes")}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def format_setting(setting: object) -> str:
    """Return a setting as written in a recipe: true, null, [0.5, 1.0]."""
    return setting if isinstance(setting, str) else json.dumps(setting)


def make_scalars(record: Record) -> dict[str, float]:
    """Return the values of a record under their names in trackers.

    Empty for kinds of records without curves.
    """
    names = METRIC_NAMES.get(str(record["kind"]), {})
    values = {
        name: record[key] for key, name in names.items() if isinstance(record.get(key), int | float)
    }
    return values | {"epoch": record["epoch"]} if values else {}
