"""The folds of a cross-validation are evaluated together."""

import base64
import io
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from resnet_recipes.inference.network_pool import pool_results
from resnet_recipes.inference.trained_network import EvaluationResult
from resnet_recipes.network.load import load
from resnet_recipes.network.weights import write_weights
from resnet_recipes.recipe.frozen_recipe import freeze, read
from resnet_recipes.run_folder import WEIGHTS
from resnet_recipes.run_folder.metrics import Metrics
from resnet_recipes.training.outcomes import Outcomes
from tests.shared.run_folders import create_folder_with_weights
from tests.shared.tables import read_csv_rows


@pytest.fixture
def folds(make_run, tmp_path, monkeypatch):
    """Work in a folder with two runs, each with half of the images of images/val set aside."""
    monkeypatch.chdir(tmp_path)
    first = create_folder_with_weights(make_run, tmp_path / "first")
    second = Path(shutil.copytree(first, tmp_path / "second"))
    network = load(first)
    with torch.no_grad():
        network.model.fc.weight.neg_()
    write_weights(network.model, second / WEIGHTS, network.about)
    for number, run in enumerate((first, second), 1):
        recipe = read(run / "config.yaml")
        recipe.data.root = str(tmp_path / "images/val")
        recipe.data.fold = f"{number}/2"
        (run / "config.yaml").write_text(freeze(recipe))
    return first, second


def test_pool_evaluates_each_image_once(folds, run_json, run_command):
    pooled = run_json("resnet-recipes eval first second --images all.csv")
    parts = [
        run_json(f"resnet-recipes eval {name} --images {name}.csv") for name in ("first", "second")
    ]
    assert [part["eval_examples"] for part in parts] == [15, 15]
    assert pooled["eval_examples"] == 30
    assert read_csv_rows("all.csv") == [*read_csv_rows("first.csv"), *read_csv_rows("second.csv")]
    assert len({row["path"] for row in read_csv_rows("all.csv")}) == 30
    for key in ("top1_percent", "top5_percent", "loss"):
        assert pooled[key] == pytest.approx((parts[0][key] + parts[1][key]) / 2)
    low, high = pooled["top1_interval_percent"]
    assert low < pooled["top1_percent"] < high
    rows = read_csv_rows("all.csv")
    recalls = [
        np.mean([row["prediction"] == name for row in rows if row["label"] == name])
        for name in {row["label"] for row in rows}
    ]
    assert pooled["balanced_percent"] == pytest.approx(100 * np.mean(recalls))
    assert ", 2 runs" in run_command("resnet-recipes eval first second").out


def test_pool_results_weights_folds_by_images():
    results = []
    for count, top1, top5, loss in ((1, 100.0, 100.0, 1.0), (3, 0.0, 60.0, 5.0)):
        labels = torch.zeros(count, dtype=torch.int64)
        outcomes = Outcomes(labels, labels + (top1 == 0), torch.ones(count), torch.ones(count))
        results.append(EvaluationResult(Metrics(top1, top5, loss, count), 2.0, "CPU", outcomes))
    pooled = pool_results(results)
    assert pooled.metrics == pytest.approx((25.0, 70.0, 4.0, 4, 25.0))
    assert pooled.seconds == 4


def test_pooled_gallery_sorts_networks_by_confidence(folds, run_json):
    run_json("resnet-recipes eval first second --images a.csv --gallery a.html")
    wrong = [row for row in read_csv_rows("a.csv") if row["prediction"] != row["label"]]
    wrong.sort(key=lambda row: -float(row["probability"]))
    page = Path("a.html").read_text()
    assert re.findall("<small>(.*)</small>", page) == [row["path"] for row in wrong]
    for content, row in list(zip(re.findall('base64,([^"]+)', page), wrong, strict=True))[::5]:
        tile = Image.open(io.BytesIO(base64.b64decode(content)))
        whole = Image.open(row["path"]).resize((43, 36)).crop((5, 2, 37, 34))
        apart = np.abs(np.asarray(tile, np.float32)[:, :32] - np.asarray(whole, np.float32)).mean()
        assert apart < 40  # two random images differ by 85


def test_pool_rejects_networks_of_other_images_or_classes(folds, run_command):
    message = run_command("resnet-recipes eval first second data=images", 2).err
    assert "`first second` have 30 images in common; only runs on different" in message
    assert "try:   resnet-recipes compare first second\n" in message
    Path("linked").symlink_to("images")  # the same images under another name
    recipe = read(folds[1] / "config.yaml")
    recipe.data.root = str(Path("linked/val").absolute())
    recipe.data.fold = "1/2"
    (folds[1] / "config.yaml").write_text(freeze(recipe))
    message = run_command("resnet-recipes eval first second", 2).err
    assert "`first second` have 15 images in common; only runs on different" in message
    network = load(folds[1])
    classes = ("another", *network.about.classes[1:])
    write_weights(network.model, folds[1] / WEIGHTS, replace(network.about, classes=classes))
    message = run_command("resnet-recipes eval first second", 2).err
    assert "has other classes than first\n      hint:  evaluate one run at a time\n" in message
