"""A run that is killed, stopped or damaged at any moment has the same weights after a resume."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from resnet_recipes.jobs import watchdog
from resnet_recipes.jobs.watchdog import Observer
from resnet_recipes.network import archive
from resnet_recipes.network.load import BEST, WEIGHTS
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder.ending import find_first_failure
from resnet_recipes.run_folder.metrics import filter_kind, read_metrics
from resnet_recipes.training.checkpoint import Checkpoints
from tests.jobs.nursery import Nursery
from tests.run_folders import begun

STEPS = 10

SMALL = (
    "data.backend=synthetic data.train_size=32 data.eval_resize=32 data.eval_size=32 "
    "model.name=resnet18 model.num_classes=auto batch.global_size=6 "
    f"batch.eval_size=25 max_duration={STEPS}ba ssr=1 schedule.warmup=1ba "
    "checkpoint.interval=3ba evaluation.interval=4ba checkpoint.best=loss "
    "log.interval=3ba launch.device=cpu optimizer.lr=0.01 methods.sam.interval=2 "
    "methods.ema.half_life=4ba methods.ema.update_interval=1ba"
).split()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def configs() -> dict[int, Recipe]:
    """A small Hot with every method, by number of ranks.

    The order in which ranks add matters only for three or more.
    """
    return {
        ranks: compose("hot", [*SMALL, f"batch.bn_size={6 // ranks}"]).recipe for ranks in (1, 2, 3)
    }


class Run:
    """A run folder and its ranks."""

    def __init__(self, folder: Path, configs: dict[int, Recipe], nursery: Nursery, ranks: int):
        self.folder, self.nursery, self.ranks = begun(folder, configs[ranks]), nursery, ranks

    def start(self, largest_file: int = -1) -> list[int]:
        """Start or restart the ranks, and return their process ids."""
        self.observer = Observer(self.folder)
        return self.nursery.start(self.folder, self.ranks, largest_file=largest_file)

    def start_until(self, step: int, largest_file: int = -1) -> list[int]:
        """Start the ranks, and return when all have done `step` steps since this start."""
        pids = self.start(largest_file)
        while True:
            beats = [
                beat
                for beat in watchdog.read_beats(self.folder)
                if beat.pid in pids and beat.step >= step
            ]
            if len(beats) == self.ranks:
                return pids
            assert find_first_failure(self.observer.read_endings()) is None
            time.sleep(0.002)

    def finish(self) -> "Run":
        """Continue to the end."""
        self.observer = Observer(self.folder)
        self.nursery.train(self.folder, self.ranks)
        return self

    def newest(self) -> int:
        """Return the step of the newest readable checkpoint."""
        return Checkpoints(self.folder / "checkpoints", 2).newest()[0]

    def evaluated(self) -> list[int]:
        """Return the steps of the recorded evaluations."""
        records = filter_kind(read_metrics(self.folder / "metrics.jsonl"), "evaluation")
        return [record["step"] for record in records]


@pytest.fixture(scope="module")
def untouched(
    tmp_path_factory: pytest.TempPathFactory, configs: dict, nursery: Nursery
) -> Callable[[int], Run]:
    """Return a function that returns a finished, uninterrupted run on a number of ranks."""
    return cache(
        lambda ranks: Run(
            tmp_path_factory.mktemp("untouched") / str(ranks), configs, nursery, ranks
        ).finish()
    )


def state(folder: Path, step: int = STEPS) -> dict:
    """Return a checkpoint of a run."""
    return archive.read(folder / f"checkpoints/step-{step:08d}.pt")


def assert_same(folder: Path, other: Path, step: int = STEPS) -> None:
    """Check that the weights of two runs are bit-identical."""
    a, b = state(folder, step), state(other, step)
    for part in ("model", "optimizer", "methods", "precision", "best"):
        left, right = dict(tensors(a[part])), dict(tensors(b[part]))
        assert left.keys() == right.keys()
        assert [name for name in left if not torch.equal(left[name], right[name])] == []


def tensors(value: object, key: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every value in a state with its key; plain numbers as tensors."""
    if isinstance(value, torch.Tensor):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from tensors(item, f"{key}/{name}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from tensors(item, f"{key}/{i}")
    elif isinstance(value, int | float):
        yield key, torch.tensor(value)


def test_run_survives_disk_ctrl_c_kill_and_damage(tmp_path, configs, nursery, untouched):
    run = Run(tmp_path / "run", configs, nursery, 1)
    os.kill(run.start_until(3, largest_file=100_000)[0], signal.SIGTERM)
    assert nursery.wait() == [1]  # not 75: no checkpoint could be saved
    assert "could not be written" in find_first_failure(run.observer.read_endings()).message
    assert not list((run.folder / "checkpoints").iterdir())
    os.kill(run.start_until(2)[0], signal.SIGINT)
    assert nursery.wait() == [130]
    (beat,) = watchdog.read_beats(run.folder)
    assert run.newest() == beat.step  # no step is lost
    os.kill(run.start_until(beat.step + 1)[0], signal.SIGKILL)
    assert nursery.wait() == [-signal.SIGKILL]
    os.kill(run.start_until(beat.step + 1)[0], signal.SIGTERM)
    nursery.wait()
    last = max((run.folder / "checkpoints").glob("*.pt"))
    content = bytearray(last.read_bytes())
    content[random.Random(1).randrange(len(content))] ^= 4
    last.write_bytes(content)
    assert_same(run.finish().folder, untouched(1).folder)
    assert "was skipped" in (run.folder / "metrics.jsonl").read_text()


def test_weights_are_written_when_last_checkpoint_fails(tmp_path, configs, nursery, untouched):
    folder = untouched(1).folder
    weights, checkpoint = (
        (folder / name).stat().st_size
        for name in ("weights.safetensors", f"checkpoints/step-{STEPS:08d}.pt")
    )
    assert weights + 100_000 < checkpoint
    run = Run(tmp_path / "run", configs, nursery, 1)
    run.start(largest_file=weights + 100_000)
    assert nursery.wait() == [0]
    for name in ("weights.safetensors", "weights-raw.safetensors"):
        assert (run.folder / name).stat().st_size == (folder / name).stat().st_size
    assert "could not be written" in (run.folder / "metrics.jsonl").read_text()


@pytest.mark.parametrize("largest_file", [100_000, 3000])
def test_weights_larger_than_disk_name_the_disk(tmp_path, configs, nursery, largest_file):
    run = Run(tmp_path / "run", configs, nursery, 1)
    config = run.folder / "config.yaml"
    config.write_text(config.read_text().replace("interval: 3ba", "interval: 100ba"))
    run.start(largest_file)
    assert nursery.wait() == [1]
    said = find_first_failure(run.observer.read_endings()).message
    assert said.startswith("training is done, but its results could not be written")
    assert said.endswith("(File too large)")


def test_recreated_folder_is_left_to_the_other_run(tmp_path, configs, nursery):
    run = Run(tmp_path / "run", configs, nursery, 1)
    run.start_until(1)
    run.folder.rename(tmp_path / "gone")  # deleting single files would race with the rank
    run.folder.mkdir()
    assert nursery.wait() == [1]
    assert list(run.folder.iterdir()) == []
    assert (
        "was moved, deleted or replaced during the run"
        in (tmp_path / "gone/logs/rank0.log").read_text()
    )


def test_two_ranks_resume_after_stops_and_evaluation(tmp_path, configs, nursery, untouched):
    run, saved = Run(tmp_path / "run", configs, nursery, 2), []
    for step in (1, 4, 5, STEPS):
        nursery.start(run.folder, 2, stop_at=step)
        assert nursery.wait() == [75, 75]
        saved.append(run.newest())
    # the vote takes two steps; step 4, after a SAM step, is evaluated, and so is the last
    assert saved == [3, 4, 7, STEPS]
    assert run.evaluated() == [4, 8]
    assert not (run.folder / WEIGHTS).exists()
    run.finish()
    assert run.evaluated() == [4, 8, 10]
    for name in (WEIGHTS, BEST, "weights-raw.safetensors"):
        assert (run.folder / name).read_bytes() == (untouched(2).folder / name).read_bytes()


def test_three_ranks_resume_after_signal_and_kill(tmp_path, configs, nursery, untouched):
    run = Run(tmp_path / "run", configs, nursery, 3)
    os.kill(run.start_until(1)[2], signal.SIGTERM)
    assert nursery.wait() == [75, 75, 75]
    assert len({beat.step for beat in watchdog.read_beats(run.folder)}) == 1
    os.kill(run.start_until(5)[random.Random(2).randrange(3)], signal.SIGKILL)
    assert sorted(nursery.wait()) == [-signal.SIGKILL, 1, 1]
    assert_same(run.finish().folder, untouched(3).folder)
