"""`resnet-recipes estimate` without a recipe, and a budget that chooses one."""

import json
from pathlib import Path

import pytest
from PIL import Image

from resnet_recipes import cli, data
from resnet_recipes.planning.plan import IMAGENET
from tests.run_folders import run_folder
from tests.trained_runs import random_images

CPU = ["launch.device=cpu", "gpus=1"]


@pytest.fixture
def imagenet(monkeypatch, tmp_path):
    """The words of a command on a million images, which only this says are there."""
    monkeypatch.setattr(data, "measure", lambda *_, **__: IMAGENET)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return ["data=/data/imagenet", *CPU]


def asked(*words, capsys):
    assert cli.main(["estimate", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_published_length_is_listed_with_its_accuracy_and_the_front(imagenet, capsys):
    rows = asked(*imagenet, "--price", "2", capsys=capsys)
    found = {(row["recipe"], row["epochs"]): row for row in rows}
    assert found["mild", 67]["top1_percent"] == 78.1
    assert found["mild", 67]["accuracy"] == "published"
    assert found["mild", 36]["accuracy"].startswith("interpolated")
    assert found["ffcv_rn50", 16]["top1_percent"] == 73.76
    assert found["mild", 32]["cost"] == pytest.approx(found["mild", 32]["minutes"] / 30)
    front = [row for row in rows if row["front"]]
    for row in rows:
        beaten = [
            other
            for other in rows
            if row["top1_percent"]
            and other["top1_percent"]
            and other["minutes"] <= row["minutes"]
            and other["top1_percent"] >= row["top1_percent"]
            and other is not row
        ]
        assert not (row in front and [one for one in beaten if one["minutes"] < row["minutes"]])
    assert front


def test_what_fits_into_a_time_is_listed_with_the_most_accurate_first(imagenet, capsys):
    hours = 3000
    rows = asked(*imagenet, "--within", f"{hours}h", capsys=capsys)
    assert all(row["most_minutes"] <= 60 * hours for row in rows)
    known = [row["top1_percent"] for row in rows if row["top1_percent"]]
    assert known == sorted(known, reverse=True)
    assert rows[0]["top1_percent"]
    assert f"epochs={rows[0]['epochs']:g}" in rows[0]["command"]


def test_what_reaches_an_accuracy_is_listed_with_the_fastest_first(imagenet, capsys):
    rows = asked(*imagenet, "--reach", "78", capsys=capsys)
    assert all(row["top1_percent"] >= 78 for row in rows)
    assert {"mild", "ffcv_rn50", "hot"} <= {row["recipe"] for row in rows}
    minutes = [row["minutes"] for row in rows]
    assert minutes == sorted(minutes)
    assert cli.main(["estimate", *imagenet, "--reach", "99"]) == 0
    assert "No recipe does." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--reach", "0.78"], "must be a percentage, as in 78"),
        (["--reach", "78", "--within", "2h"], "--reach"),
        (["--within", "2"], "must be a time, as in 2h"),
        (["--within", "$20"], "set launch.price"),
    ],
)
def test_limits_that_are_none_are_refused(flags, said, imagenet, capsys):
    assert cli.main(["estimate", *imagenet, *flags]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of 32 px images, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return random_images(tmp_path / "images")


def test_other_images_have_the_accuracy_of_own_runs_alone(folder, capsys):
    words = [f"data={folder}", *CPU, "bs=8", "batch.bn_size=8"]
    rows = asked(*words, capsys=capsys)
    assert {"mild", "small"} <= {row["recipe"] for row in rows}
    assert not any(row["top1_percent"] or row["front"] for row in rows)
    (digest,) = {data.measure(data.DataConfig(root=str(folder))).train_digest}
    for name, top1, changes in (("a", 50.0, ""), ("b", 60.0, ""), ("c", 90.0, "optimizer.lr=9\n")):
        run = run_folder(Path("runs"), name, recipe="small", top1=top1, epochs=7.0)
        (run / "data.json").write_text(json.dumps({"train_digest": digest}))
        (run / "overrides.txt").write_text(f"max_duration=7ep\n{changes}")
    found = {(row["recipe"], row["epochs"]): row for row in asked(*words, capsys=capsys)}
    assert found["small", 7]["top1_percent"] == 55.0
    assert found["small", 7]["accuracy"] == "2 own runs"
    assert cli.main(["estimate", *words]) == 0
    assert "left out: " in capsys.readouterr().out


def test_a_budget_without_a_recipe_chooses_one_and_says_why(folder, capsys):
    words = [f"data={folder}", *CPU, "bs=8", "batch.bn_size=8", "budget=9h"]
    assert cli.train([*words, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "recipe=small: images of " in err
    assert "; next: mild, " in err
    assert "\n  recipe     small, packaged" in out


def test_a_budget_that_is_too_little_for_all_says_what_the_likeliest_recipe_needs(folder, capsys):
    assert cli.train([f"data={folder}", *CPU, "bs=8", "batch.bn_size=8", "budget=1s"]) == 2
    said = capsys.readouterr().err
    assert "budget=1s: is too little: epochs=1, the least" in said
    assert "error: 1 problem" in said


def test_a_budget_for_photographs_has_no_use_for_a_small_network(folder, capsys):
    words = [f"data={folder}", *CPU, "bs=8", "batch.bn_size=8", "budget=9h"]
    for image in folder.rglob("*.*"):
        if image.suffix in (".png", ".jpg", ".jpeg"):
            Image.new("RGB", (200, 200)).save(image)
    assert cli.train([*words, "--dry-run"]) == 0
    assert "recipe=mild: trained weights" in capsys.readouterr().err


def test_a_budget_on_imagenet_chooses_by_what_was_published(imagenet, started, capsys):
    assert cli.train([*imagenet, "budget=3000h", "--dry-run"]) == 0
    assert "the most accurate by what was published; next: " in capsys.readouterr().err
    assert cli.train(["data=/data/imagenet", "--dry-run"]) == 2
    assert "recipe: is missing" in capsys.readouterr().err
