"""Fixtures for the tests of commands."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from resnet_recipes.run_folder.ending import Ending
from tests.shared.images import create_random_images
from tests.shared.run_folders import release_and_record

if TYPE_CHECKING:
    from tests.shared.fixtures import Streams


@pytest.fixture(autouse=True)
def _work_in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, on a machine with two cores and no earlier measurements."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}.cache")


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of tiny images, for tests that do not change them."""
    return create_random_images(tmp_path_factory.mktemp("shared") / "images")


@pytest.fixture
def run_subcommand(run_command: "Callable[..., Streams]") -> Callable[..., str]:
    """Run a command of `resnet-recipes`, and return its stdout."""
    return lambda line: run_command(f"resnet-recipes {line}").out


@pytest.fixture
def recipes() -> Path:
    """An empty folder for the user's recipes."""
    Path("recipes").mkdir()
    return Path("recipes")


@pytest.fixture
def run_folders(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr("sys.argv", ["resnet-train", "recipe=mild", "lr=1"])
    folders = []
    monkeypatch.setattr(
        "resnet_recipes.jobs.ranks.launcher.start",
        lambda held, *_: release_and_record(held, folders) or Ending(75),
    )
    return folders
