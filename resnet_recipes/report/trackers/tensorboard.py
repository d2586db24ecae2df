"""TensorBoard event files in RUN/tensorboard, written without torch."""

from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter


class TensorBoard:
    """One event file per session; a resumed run hides the points after its checkpoint."""

    def __init__(self, folder: Path):
        self._folder = folder / "tensorboard"
        self._writer: SummaryWriter | None = None

    def begin(self, settings: Mapping[str, object], step: int) -> None:
        self._writer = SummaryWriter(str(self._folder), purge_step=step + 1 if step else None)
        table = "\n".join(f"|{key}|{value}|" for key, value in settings.items())
        self._writer.add_text("settings", f"|setting|value|\n|-|-|\n{table}", step)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


def open_tracker(folder: Path) -> TensorBoard:
    """Return the tracker of a run folder."""
    return TensorBoard(folder)
