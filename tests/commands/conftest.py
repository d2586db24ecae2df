"""What the tests of commands share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from resnet_recipes.run_folder.ending import Ending
from resnet_recipes.training.run import Run
from tests.trained_runs import ended_run


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Work in an empty folder, where starting a run only notes it, and ends as if stopped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr("sys.argv", ["resnet-train", "recipe=mild", "lr=1"])
    folders = []
    monkeypatch.setattr(
        "resnet_recipes.jobs.launcher.start",
        lambda folder, *_: folders.append(Path(folder).resolve()) or Ending(75),
    )
    return folders


@pytest.fixture
def run(make_run: Callable[..., Run], tmp_path: Path) -> Path:
    """A run with BlurPool and random weights, next to its images."""
    return ended_run(make_run, tmp_path / "run", methods={"blurpool": {}})
