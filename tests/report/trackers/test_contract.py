"""The contract of every tracker; docs/contributing/tracker.md adds a tracker."""

import tomllib
from pathlib import Path

import pytest

from resnet_recipes.recipe.sections import LogConfig
from resnet_recipes.report.trackers import TRACKERS, find_tracker_problems, open_tracker
from resnet_recipes.run_folder.lock import reject_links
from tests.report.trackers.tracker_packages import TRACKED_SETTINGS, skip_without

EACH = [pytest.param(name, marks=skip_without(name)) for name in TRACKERS]


@pytest.mark.parametrize("name", EACH)
def test_tracker_accepts_run_resume_and_end(name, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "runs/mine"
    folder.mkdir(parents=True)
    for begun in (0, 5):
        curves = open_tracker(name, folder)
        curves.begin(TRACKED_SETTINGS, begun)
        for step in range(begun + 1, begun + 8):
            curves.scalars(step, {"train/loss": 1 / step, "train/lr": 0.1, "epoch": step / 10})
        curves.scalars(begun + 7, {"val/top1": 70, "epoch": (begun + 7) / 10})
        curves.close(begun > 0)
    reject_links(folder)  # a run with links in its folder cannot be resumed
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}


@pytest.mark.parametrize("name", TRACKERS)
def test_tracker_name_and_extra_match_its_package(name):
    assert list(LogConfig(to=[name]).problems()) == []
    package, extra = TRACKERS[name]
    if not extra:
        assert list(find_tracker_problems([name])) == []
        return
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    named = " ".join(project["optional-dependencies"][extra])
    assert package in named
