"""Small runs of Hot in processes, and comparisons of their checkpoints, for tests of jobs."""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from resnet_recipes.jobs.ranks.heartbeat import RankMonitor
from resnet_recipes.network import archive
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder.ending import find_first_failure
from resnet_recipes.run_folder.metrics import filter_kind, read_metrics
from resnet_recipes.training.checkpoint import Checkpoints
from tests.shared.checks import is_identical
from tests.shared.launcher import Launcher
from tests.shared.run_folders import create_unstarted_run

STEPS = 10

#: Changes of `hot`. In tests/shared/forks.py, resnet18 has two narrow blocks.
SMALL_HOT = (
    "data.backend=synthetic data.train_size=32 data.eval_resize=32 data.eval_size=32 "
    "model.name=resnet18 model.num_classes=auto batch.global_size=6 "
    f"batch.eval_size=25 max_duration={STEPS}ba ssr=1 schedule.warmup=1ba "
    "checkpoint.interval=3ba evaluation.interval=4ba checkpoint.best=loss "
    "log.interval=3ba launch.device=cpu optimizer.lr=0.01 methods.sam.interval=2 "
    "methods.ema.half_life=4ba methods.ema.update_interval=1ba"
).split()


class SmallRun:
    def __init__(self, folder: Path, configs: dict[int, Recipe], launcher: Launcher, ranks: int):
        self.folder = create_unstarted_run(folder, configs[ranks])
        self.launcher = launcher
        self.ranks = ranks

    def start(self, function: Callable[..., int] | None = None, **arguments: int) -> "SmallRun":
        """Start or resume the run; a function may replace the work of its ranks."""
        self.monitor = RankMonitor(self.folder)
        self.command = self.launcher.start(self.folder, self.ranks, function, **arguments)
        return self

    def await_step(self, step: int) -> list[int]:
        """Wait until all ranks have done `step` steps since the start; return their process ids."""
        while True:
            beats = [beat for beat in self.monitor.read_beats() if beat.step >= step]
            if len(beats) == self.ranks:
                return [beat.pid for beat in beats]
            assert find_first_failure(self.monitor.read_endings()) is None
            time.sleep(0.002)

    def wait(self) -> tuple[int, list[int]]:
        """Wait for the end; return the exit codes of the launcher and of ranks that wrote one."""
        code, *_ = self.command.wait()
        return code, [ending.code for ending in self.monitor.read_endings()]

    def finish(self) -> "SmallRun":
        assert self.start().wait() == (0, [0] * self.ranks), self.command.read_streams()
        return self

    def find_newest_step(self) -> int:
        return Checkpoints(self.folder / "checkpoints", 2).load_newest().step

    def list_evaluations(self) -> list[int]:
        records = filter_kind(read_metrics(self.folder / "metrics.jsonl"), "evaluation")
        return [record["step"] for record in records]


def read_state(folder: Path, step: int = STEPS) -> dict:
    return archive.read(folder / f"checkpoints/step-{step:08d}.pt")


def assert_same_weights(folder: Path, other: Path, step: int = STEPS) -> None:
    """Check that the weights of two runs are bit-identical."""
    a = read_state(folder, step)
    b = read_state(other, step)
    for part in ("model", "optimizer", "methods", "precision", "best"):
        assert is_identical(a[part], b[part]), part


def copy_as_killed(step: int, run: Path) -> Path:
    """Return a copy of a finished run as if it was killed right after a checkpoint."""
    folder = Path(tempfile.mkdtemp(dir=run.parent))
    (folder / "checkpoints").mkdir()
    saved = f"checkpoints/step-{step:08d}"
    for name in ("config.yaml", "data.json", f"{saved}.pt", f"{saved}.json"):
        shutil.copy(run / name, folder / name)
    return folder
