"""A run that is killed, stopped or damaged at any moment has the same weights after a resume."""

import os
import random
import resource
import signal
from collections.abc import Callable
from functools import cache

import pytest

from resnet_recipes.jobs.ranks import heartbeat
from resnet_recipes.jobs.ranks.rank import RankProcess
from resnet_recipes.jobs.train import run_task
from resnet_recipes.recipe.compose import compose
from resnet_recipes.recipe.schema import Recipe
from resnet_recipes.run_folder import BEST_WEIGHTS, STOP, WEIGHTS
from resnet_recipes.run_folder.ending import find_first_failure, read_ending
from tests.jobs.small_runs import SMALL_HOT, STEPS, SmallRun, assert_same_weights
from tests.shared.launcher import Launcher

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def configs() -> dict[int, Recipe]:
    """A small Hot without RandAugment, by number of ranks.

    The order in which ranks add matters only for three or more.
    """
    return {
        ranks: compose("hot", [*SMALL_HOT, f"batch.bn_size={6 // ranks}"]).recipe
        for ranks in (1, 2, 3)
    }


def train_with_file_limit(process: RankProcess, size: int) -> int:
    """Do the work of a rank whose files are limited to a number of bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    return run_task(process)


def train_until_sigterm(process: RankProcess, step: int) -> int:
    """Do the work of a rank; the last rank gets SIGTERM after a number of steps."""
    beat = process.heartbeat.beat

    def beat_and_terminate(done: int, phase: str) -> None:
        beat(done, phase)
        if done == step:
            os.kill(os.getpid(), signal.SIGTERM)

    if process.rank == int(os.environ["WORLD_SIZE"]) - 1:
        process.heartbeat.beat = beat_and_terminate
    return run_task(process)


@pytest.fixture(scope="module")
def train_uninterrupted(
    tmp_path_factory: pytest.TempPathFactory, configs: dict, launcher: Launcher
) -> Callable[[int], SmallRun]:
    """Return a function that returns a finished, uninterrupted run on a number of ranks."""
    return cache(
        lambda ranks: SmallRun(
            tmp_path_factory.mktemp("untouched") / str(ranks), configs, launcher, ranks
        ).finish()
    )


def test_run_survives_disk_ctrl_c_kill_and_damage(tmp_path, configs, launcher, train_uninterrupted):
    run = SmallRun(tmp_path / "run", configs, launcher, 1)
    run.start(train_with_file_limit, size=100_000)
    os.kill(run.await_step(3)[0], signal.SIGTERM)
    assert run.wait() == (1, [1])  # not 75: nothing could be saved
    assert "could not be written" in find_first_failure(run.monitor.read_endings()).message
    assert not list((run.folder / "checkpoints").iterdir())
    (run.folder / STOP).write_text("stopped by a test")
    os.kill(run.start().await_step(2)[0], signal.SIGINT)
    assert run.wait() == (130, [130])
    assert "stopped by a test" in (run.folder / "metrics.jsonl").read_text()
    assert not (run.folder / STOP).exists()
    (beat,) = heartbeat.read_beats(run.folder)
    assert run.find_newest_step() == beat.step  # no step is lost
    os.kill(run.start().await_step(beat.step + 1)[0], signal.SIGKILL)
    assert run.wait() == (1, [])
    assert read_ending(run.folder / "exit.json").error == "SIGKILL"
    os.kill(run.start().await_step(beat.step + 1)[0], signal.SIGTERM)
    run.wait()
    last = max((run.folder / "checkpoints").glob("*.pt"))
    content = bytearray(last.read_bytes())
    content[random.Random(1).randrange(len(content))] ^= 4
    last.write_bytes(content)
    assert_same_weights(run.finish().folder, train_uninterrupted(1).folder)
    assert "was skipped" in (run.folder / "metrics.jsonl").read_text()


def test_weights_are_written_when_last_checkpoint_fails(
    tmp_path, configs, launcher, train_uninterrupted
):
    folder = train_uninterrupted(1).folder
    weights, checkpoint = (
        (folder / name).stat().st_size
        for name in ("weights.safetensors", f"checkpoints/step-{STEPS:08d}.pt")
    )
    assert weights + 100_000 < checkpoint
    run = SmallRun(tmp_path / "run", configs, launcher, 1)
    run.start(train_with_file_limit, size=weights + 100_000)
    assert run.wait() == (0, [0])
    for name in ("weights.safetensors", "weights-raw.safetensors"):
        assert (run.folder / name).stat().st_size == (folder / name).stat().st_size
    assert "could not be written" in (run.folder / "metrics.jsonl").read_text()


@pytest.mark.parametrize("largest_file", [100_000, 3000])
def test_weights_larger_than_disk_are_reported(tmp_path, configs, launcher, largest_file):
    run = SmallRun(tmp_path / "run", configs, launcher, 1)
    config = run.folder / "config.yaml"
    config.write_text(config.read_text().replace("interval: 3ba", "interval: 100ba"))
    run.start(train_with_file_limit, size=largest_file)
    assert run.wait() == (1, [1])
    message = find_first_failure(run.monitor.read_endings()).message
    assert message.startswith("training is done, but its results could not be written")
    assert message.endswith("(File too large)")


def test_run_never_writes_to_a_recreated_folder(tmp_path, configs, launcher):
    run = SmallRun(tmp_path / "run", configs, launcher, 1)
    run.start().await_step(1)
    run.folder.rename(tmp_path / "gone")  # deleting file by file would race with the rank
    run.folder.mkdir()
    assert run.wait() == (1, [])
    assert list(run.folder.iterdir()) == []
    assert (
        "was moved, deleted or replaced during the run"
        in (tmp_path / "gone/logs/rank0.log").read_text()
    )


def test_two_ranks_resume_after_stops_and_evaluation(
    tmp_path, configs, launcher, train_uninterrupted
):
    run = SmallRun(tmp_path / "run", configs, launcher, 2)
    saved = []
    for step in (1, 4, 5, STEPS):
        assert run.start(train_until_sigterm, step=step).wait() == (75, [75, 75])
        saved.append(run.find_newest_step())
    # the vote takes two steps; step 4, after a SAM step, is evaluated, and so is the last
    assert saved == [3, 4, 7, STEPS]
    assert run.list_evaluations() == [4, 8]
    assert not (run.folder / WEIGHTS).exists()
    run.finish()
    assert run.list_evaluations() == [4, 8, 10]
    for name in (WEIGHTS, BEST_WEIGHTS, "weights-raw.safetensors"):
        assert (run.folder / name).read_bytes() == (
            train_uninterrupted(2).folder / name
        ).read_bytes()


def test_three_ranks_resume_after_signal_and_kill(tmp_path, configs, launcher, train_uninterrupted):
    run = SmallRun(tmp_path / "run", configs, launcher, 3)
    os.kill(run.start().await_step(1)[2], signal.SIGTERM)
    assert run.wait() == (75, [75, 75, 75])
    assert len({beat.step for beat in heartbeat.read_beats(run.folder)}) == 1
    killed = random.Random(2).randrange(3)
    os.kill(run.start().await_step(5)[killed], signal.SIGKILL)
    assert run.wait() == (1, [1, 1])
    ending = read_ending(run.folder / "exit.json")
    assert (ending.error, ending.rank) == ("SIGKILL", killed)
    assert_same_weights(run.finish().folder, train_uninterrupted(3).folder)
