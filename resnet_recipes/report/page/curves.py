"""The curves of a run, downsampled for plotting."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from resnet_recipes.run_folder.metrics import read_metrics
from resnet_recipes.run_folder.names import METRICS

#: Points per line: more of them than a screen can show would only make the page larger.
POINTS = 200

STEP = ("loss", "lr", "pixels", "images_per_second", "data_wait_share")


def points(folder: Path) -> list[dict[str, Any]]:
    """Return what a run logged, downsampled.

    Epoch, the quantities of STEP, and top1_percent.
    """
    records = read_metrics(folder / METRICS)
    steps = [record for record in records if record["kind"] == "step"]
    evaluations = [record for record in records if record["kind"] == "evaluation"]
    return [
        *_downsampled(steps, STEP),
        *(
            {
                "epoch": record.get("epoch"),
                "top1_percent": record.get("ema_top1_percent", record.get("raw_top1_percent")),
            }
            for record in evaluations
        ),
    ]


def _downsampled(steps: list[dict[str, Any]], keys: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield at most POINTS rows: the mean of each quantity over equally many logged steps."""
    size = -(-len(steps) // POINTS) or 1
    for start in range(0, len(steps), size):
        part = steps[start : start + size]
        row: dict[str, Any] = {"epoch": part[-1].get("epoch")}
        for key in keys:
            values = [record[key] for record in part if isinstance(record.get(key), int | float)]
            row[key] = sum(values) / len(values) if values else None
        yield row
