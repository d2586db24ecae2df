"""Fixtures for the tests of commands."""

import csv
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from resnet_recipes.run_folder.ending import Ending
from resnet_recipes.run_folder.lock import LockedFolder
from resnet_recipes.training.run import Run
from tests.images import create_random_images
from tests.run_folders import create_trained_run

#: Settings for a run that takes a second: four steps on synthetic images.
TINY = (
    "data.backend=synthetic data.train_size=32 data.eval_resize=36 data.eval_size=32 bs=16 "
    "batch.bn_size=16 lr=0.05 model.name=resnet18 schedule.warmup=1ba max_duration=4ba ssr=1 "
    "launch.device=cpu gpus=1"
)


def read_csv_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with open(name) as file:
        return [*csv.DictReader(file)]


@pytest.fixture(autouse=True)
def _work_in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, on a machine with two cores and no earlier measurements."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}.cache")


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of tiny images, for tests that do not change them."""
    return create_random_images(tmp_path_factory.mktemp("shared") / "images")


@pytest.fixture
def run_folders(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders of the runs that commands would train; each run ends as if stopped."""
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr("sys.argv", ["resnet-train", "recipe=mild", "lr=1"])
    folders = []
    monkeypatch.setattr(
        "resnet_recipes.jobs.launcher.start",
        lambda held, *_: record_run(held, folders) or Ending(75),
    )
    return folders


def record_run(held: LockedFolder, folders: list[Path]) -> None:
    """Append the folder of a run that would be trained, and release its lock."""
    with held:
        folders.append(held.path.resolve())


@pytest.fixture
def trained_run(make_run: Callable[..., Run], tmp_path: Path) -> Path:
    """A run with BlurPool and random weights in ./mine; its images are in ./images."""
    return create_trained_run(make_run, tmp_path / "mine", methods={"blurpool": {}})
