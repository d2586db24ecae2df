"""The demo dataset: real files, identical on every machine."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_recipes import data
from resnet_recipes.data import demo
from resnet_recipes.data.base import DataConfig


def test_demo_writes_an_image_folder_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = tmp_path / demo.write(Path("set"), train_images=2, val_images=1)
    facts = data.survey_images(DataConfig(root=str(root)))
    assert (facts.train_examples, facts.eval_examples, len(facts.classes)) == (24, 12, 12)
    sizes = {Image.open(path).size for path in root.rglob("*.jpg")}
    assert len(sizes) > 10
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    demo.write(root)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    monkeypatch.setattr(demo, "draw_picture", lambda name, rng: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        demo.write(tmp_path / "other")
    assert list(tmp_path.iterdir()) == [root]


def test_demo_images_are_deterministic_and_distinct():
    def draw_first(seed: int) -> np.ndarray:
        return np.asarray(demo.draw_picture("striped_cross", np.random.default_rng(seed)))

    assert np.array_equal(draw_first(3), draw_first(3))
    assert not np.array_equal(draw_first(3), draw_first(4))
