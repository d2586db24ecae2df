"""`resnet-train --check` trains the end of a run, and leaves nothing behind."""

from pathlib import Path

import pytest
import yaml

from resnet_recipes.jobs import launcher
from resnet_recipes.run_folder.ending import Ending
from tests.commands.conftest import TINY


def test_the_last_steps_are_trained_evaluated_and_deleted(nursery, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    words = f"resnet_recipes mild {TINY} max_duration=6ba seed=1 --check"
    code, out, err = nursery.run(tmp_path, *words.split()).wait(100)
    assert code == 0, err
    assert "step=4/6" in err
    assert "step=6/6" in err
    assert "eval " in err
    assert "the last 2 of 6 steps" in out
    assert [*tmp_path.rglob("config.yaml")] == []


@pytest.mark.parametrize("code", [0, 1, 130])
def test_the_run_that_is_tried_is_the_one_that_was_typed(code, tmp_path, monkeypatch, enter):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tried = []

    def train(folder: Path, *_: object) -> Ending:
        names = "config.yaml", "job.json"  # JSON is YAML
        tried.append((folder, *(yaml.safe_load((folder / name).read_text()) for name in names)))
        return Ending(code)

    monkeypatch.setattr(launcher, "start", train)
    enter(f"resnet-train mild {TINY} run=mine log.to=[csv] --check", code)
    ((folder, recipe, sample),) = tried
    assert sample == {"job": "train", "spans": [[2, 4]]}
    assert (recipe["max_duration"], recipe["optimizer"]["lr"]) == ("4ba", 0.05)
    assert recipe["log"]["to"] == []  # no tracker is sent a run that is no run
    assert not Path("runs").exists()
    assert folder.exists() == (code == 1)  # its logs say why
