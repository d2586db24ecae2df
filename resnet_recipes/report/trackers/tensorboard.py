"""TensorBoard event files in RUN/tensorboard, written without torch.

They contain the curves, and the settings as hyperparameters.
"""

from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

from resnet_recipes.report.trackers.base import METRIC_NAMES, format_setting

#: Results of each run in the table of hyperparameters.
_RESULTS = dict.fromkeys(METRIC_NAMES["evaluation"].values())


class TensorboardTracker:
    """One event file per session; a resumed run hides the points after its checkpoint."""

    def __init__(self, folder: Path):
        self._folder = folder / "tensorboard"
        self._writer: SummaryWriter

    def begin(self, settings: Mapping[str, object], step: int) -> None:
        self._writer = SummaryWriter(str(self._folder), purge_step=step + 1 if step else None)
        plain = {
            key: value if isinstance(value, int | float) else format_setting(value)
            for key, value in settings.items()
        }
        # SummaryWriter.add_hparams would create a second run in a separate folder
        for summary in hparams(plain, _RESULTS):
            self._writer.file_writer.add_summary(summary)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self, is_finished: bool) -> None:
        self._writer.close()
