import base64
import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from resnet_recipes import data
from resnet_recipes.cli import main
from resnet_recipes.data.base import DataConfig, Share
from resnet_recipes.data.normalize import normalize
from resnet_recipes.network.load import load
from resnet_recipes.recipe.frozen import freeze, read
from resnet_recipes.report.waiting import Waiting
from tests.trained_runs import CLASSES


def evaluated(capsys: pytest.CaptureFixture, *words: object) -> dict | list:
    """Return what `eval --json` prints."""
    assert main(["eval", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def counted(run: Path, size: int = 32, resize: int = 36) -> tuple[float, float, dict[str, int]]:
    """Return top-1, loss and correct images by class, counted by hand over the loop's images."""
    config = read(run / "config.yaml").data
    config.eval_size, config.eval_resize = size, resize
    network = load(run)
    loader = data.open_eval(config, data.measure(config), Share(0, 1, 8, 8, 0))
    right = {}
    loss = 0.0
    for raw in loader.batches():
        with torch.no_grad():
            logits = network(normalize(raw.pixels))
        for row, label in zip(logits, raw.labels.tolist(), strict=True):
            name = network.classes[label]
            right[name] = right.get(name, 0) + int(row.argmax() == label)
            loss += float(F.cross_entropy(row, torch.tensor(label))) / 30
    return 100 * sum(right.values()) / 30, loss, right


def test_a_run_is_evaluated_on_its_own_images_as_in_training(run, capsys):
    found, (top1, loss, right) = evaluated(capsys, run), counted(run)
    assert (found["top1_percent"], found["eval_examples"]) == (pytest.approx(top1), 30)
    assert found["loss"] == pytest.approx(loss, abs=1e-4)
    assert {row["class"]: row["correct"] for row in found["classes"]} == right
    assert all(row["class"] != row["taken_for"] for row in found["confusions"])


def test_remote_images_are_fetched_before_anything_else_and_it_shows(run, capsys, monkeypatch):
    asked = []

    def local(config: DataConfig, progress: Waiting | None = None) -> DataConfig:
        asked.append(progress.what if progress else "opened")
        return config

    monkeypatch.setattr(data, "local", local)
    evaluated(capsys, run)
    assert asked == [f"fetching {run.parent / 'images'}", "opened"]


@pytest.mark.parametrize("columns", [40, 80])
def test_a_narrow_terminal_gets_fewer_columns_and_wrapped_lines(run, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(run.parent)
    assert main(["eval", "run", "data=images"]) == 0
    out = capsys.readouterr().out
    worst = out[out.index("worst classes") :].splitlines()
    assert worst[1].split() == ["TOP-1", "OF", *["PRECISION"] * (columns > 40), "F1", "CLASS"]
    assert max(len(line) for line in out.splitlines() if str(run.parent) not in line) <= columns


@pytest.mark.parametrize("flag", ["--csv", "--images"])
def test_a_table_of_the_images_is_not_replaced(run, flag, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(run.parent))
    images = run.parent / "images"
    rows = [f"{path.relative_to(images)},{path.parent.name}" for path in images.glob("val/*/*")]
    table = images / "labels.csv"
    table.write_text("\n".join(["path,label", *rows]))
    before = table.read_bytes()
    for place, name in ((table, str(table)), (images, str(table)), (images, "~/images/labels.csv")):
        assert main(["eval", str(run), f"data={place}", flag, name]) == 2
        assert "may be their table" in capsys.readouterr().err
    assert table.read_bytes() == before


def test_a_file_needs_only_to_be_told_where_the_images_are(run, capsys):
    from_file = evaluated(
        capsys, run / "weights.safetensors", f"data={run.parent / 'images'}", "workers=0"
    )
    assert from_file["loss"] == pytest.approx(evaluated(capsys, run)["loss"], abs=1e-6)
    assert main(["eval", str(run / "weights.safetensors")]) == 3
    assert "data.root: is not set" in capsys.readouterr().err


def test_class_folders_are_told_apart_by_name(run, capsys):
    val = run.parent / "images" / "val"
    whole = {row["class"]: row["correct"] for row in evaluated(capsys, run)["classes"]}
    some = run.parent / "some"
    for name in CLASSES[3:9:2]:
        (some / name).mkdir(parents=True)
        for image in (val / name).iterdir():
            (some / name / image.name).write_bytes(image.read_bytes())
    found = evaluated(capsys, run, f"data={some}")
    assert {row["class"]: row["correct"] for row in found["classes"]} == {
        name: whole[name] for name in CLASSES[3:9:2]
    }
    (some / "strange").mkdir()
    assert main(["eval", str(run), f"data={some}"]) == 3
    assert "does not know: strange" in capsys.readouterr().err


def test_sizes_are_a_table_and_the_shorter_side_grows_with_them(run, capsys):
    assert main(["eval", str(run), "evaluation.sizes=[32,64]"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["SIZE", "OF", "TOP-1"]
    assert [row.split()[:2] for row in rows] == [["32", "36"], ["64", "72"]]
    assert float(rows[1].split()[6]) == pytest.approx(counted(run, 64, 72)[1], abs=1e-3)


def test_a_run_with_sizes_in_its_recipe_is_tested_at_them(run, capsys):
    recipe = read(run / "config.yaml")
    recipe.evaluation.sizes = [32, 64]
    (run / "config.yaml").write_text(freeze(recipe))
    assert [row["eval_size"] for row in evaluated(capsys, run)] == [32, 64]
    for flag in ("--png", "--images", "--gallery"):
        assert main(["eval", str(run), flag, "x"]) == 2
        said = capsys.readouterr().err
        assert f"{flag}=x: is for one test size, but evaluation.sizes is [32, 64]" in said
    table = run.parent / "sizes.csv"
    assert main(["eval", str(run), "--csv", str(table)]) == 0
    assert [row["eval_size"] for row in csv.DictReader(table.open())] == ["32", "64"]
    assert "SIZE" in capsys.readouterr().out
    assert "eval_size" in evaluated(capsys, run, "evaluation.sizes=[]")


@pytest.mark.slow
def test_two_ranks_count_what_one_counts(run, nursery, tmp_path, capsys):
    one = evaluated(capsys, run)
    code, out, err = nursery.run(
        tmp_path, "tests.commands.verb", "eval", str(run), "gpus=2", "--json"
    ).wait()
    assert code == 0, err
    two = json.loads(out)
    assert two.pop("device") == one.pop("device") + ", 2 processes"
    assert two.pop("loss") == pytest.approx(one.pop("loss"), abs=1e-5)
    del one["images_per_second"], two["images_per_second"]
    assert two == one


def test_an_unreadable_image_is_named_with_what_lists_all_on_a_line_of_its_own(run, capsys):
    bad = run.parent / "images" / "val" / "pattern0" / "\x1b.jpg"
    bad.write_bytes(b"none")
    assert main(["eval", str(run)]) == 1
    said = capsys.readouterr().err
    assert "\\x1b.jpg is not an image of a known format" in said
    assert re.search(r"\n    resnet-recipes doctor data \S*  lists them\n$", said)


def test_classes_are_written_as_csv(run, tmp_path, capsys):
    assert main(["eval", str(run), "--csv", str(tmp_path / "classes.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "classes.csv").open()))
    assert {row["class"] for row in rows} == set(CLASSES)
    assert "top-1" in capsys.readouterr().out


def test_every_image_is_written_as_predict_classifies_it(run, tmp_path, capsys):
    found = evaluated(capsys, run, "--images", tmp_path / "images.csv")
    rows = list(csv.DictReader((tmp_path / "images.csv").open()))
    assert [row["label"] for row in rows] == [Path(row["path"]).parent.name for row in rows]
    assert main(["predict", str(run), *(row["path"] for row in rows), "--json"]) == 0
    for row, one in zip(rows, json.loads(capsys.readouterr().out), strict=True):
        assert row["prediction"] == one["classes"][0]["class"]
        assert float(row["probability"]) == pytest.approx(
            one["classes"][0]["probability"], abs=1e-5
        )
    assert sum(float(row["loss"]) for row in rows) / 30 == pytest.approx(found["loss"], abs=1e-5)


def test_the_gallery_has_the_first_of_the_wrong_images_by_confidence(
    run, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("resnet_recipes.commands.eval._IN_GALLERY", 4)
    evaluated(capsys, run, "--images", tmp_path / "a.csv", "--gallery", tmp_path / "a.html")
    rows = csv.DictReader((tmp_path / "a.csv").open())
    wrong = [row for row in rows if row["prediction"] != row["label"]]
    wrong.sort(key=lambda row: -float(row["probability"]))
    page = (tmp_path / "a.html").read_text()
    assert re.findall("<small>(.*)</small>", page) == [row["path"] for row in wrong[:4]]
    assert f"{len(wrong)} of 30 images were classified wrongly; these are the 4 with" in page
    first = Image.open(io.BytesIO(base64.b64decode(re.search('base64,([^"]+)', page)[1])))
    whole = Image.open(wrong[0]["path"]).resize((43, 36)).crop((5, 2, 37, 34))
    assert first.size == (32, 32)
    apart = np.abs(np.asarray(first, np.float32) - np.asarray(whole, np.float32)).mean()
    assert apart < 40  # of 85 between two random images


def test_beton_files_give_the_accuracy_of_the_folder_that_they_were_made_of(run, capsys):
    betons, images = run.parent / "betons", run.parent / "images"
    assert main(["convert", str(images), str(betons)]) == 0
    capsys.readouterr()
    found = evaluated(capsys, run, f"data={betons / 'val.beton'}")
    whole = evaluated(capsys, run)
    assert [found[key] for key in ("top1_percent", "eval_examples")] == [
        whole[key] for key in ("top1_percent", "eval_examples")
    ]
    assert found["loss"] == pytest.approx(whole["loss"], abs=0.02)
