"""Weights & Biases, with its own environment variables, such as WANDB_PROJECT and WANDB_MODE.

Its files are in the folder wandb next to the run folders: it makes symbolic links, which a run
folder must not have.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import wandb

from resnet_recipes.base import atomic
from resnet_recipes.report.trackers.base import make_tags

#: The exit code that W&B reports for a program stopped by Ctrl-C.
_STOPPED_CODE = 255


class WandbTracker:
    """One W&B run per run folder, continued when the run is resumed; its id is in RUN/wandb-run.

    The step in W&B is the step of the run: a resumed run continues from there, and W&B drops points
    that it already has.
    """

    def __init__(self, folder: Path):
        self._folder = folder.resolve()
        self._run: wandb.Run

    def begin(self, settings: Mapping[str, object], step: int) -> None:
        id_file = self._folder / "wandb-run"
        if not id_file.is_file():
            atomic.write_text(id_file, secrets.token_hex(8))
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "resnet-recipes"),
            id=id_file.read_text().strip(),
            name=self._folder.name,
            dir=os.environ.get("WANDB_DIR") or str(self._folder.parent),
            config=dict(settings),
            tags=[f"{key}: {value}"[:64] for key, value in make_tags(self._folder).items()],
            resume="allow",
            settings=wandb.Settings(silent=True, console="off"),
        )

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self, is_finished: bool) -> None:
        self._run.finish(exit_code=0 if is_finished else _STOPPED_CODE)
