"""Weights & Biases, with its own environment variables (WANDB_PROJECT, WANDB_MODE=offline ...)."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import wandb


class WeightsAndBiases:
    """One W&B run per run folder, continued when the run is resumed; the x axis is the step, not W&B's own counter."""

    def __init__(self, folder: Path):
        self._folder = folder.resolve()
        self._run: wandb.Run | None = None

    def begin(self, settings: Mapping[str, object], step: int) -> None:
        self._run = wandb.init(project=os.environ.get("WANDB_PROJECT", "resnet-recipes"),
                               id=hashlib.sha256(str(self._folder).encode()).hexdigest()[:16], name=self._folder.name,
                               dir=str(self._folder), config=dict(settings), resume="allow",
                               settings=wandb.Settings(silent=True, console="off"))
        self._run.define_metric("*", step_metric="step")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "step": step})

    def close(self) -> None:
        self._run.finish()


def open_tracker(folder: Path) -> WeightsAndBiases:
    """Return the tracker of a run folder."""
    return WeightsAndBiases(folder)
