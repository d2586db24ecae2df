import csv
import json
from pathlib import Path

import pytest
from PIL import Image

from resnet_recipes.cli import main
from resnet_recipes.network.load import load
from resnet_recipes.network.weights import write_weights
from tests.trained_runs import CLASSES


def predicted(capsys: pytest.CaptureFixture, *words: object) -> list[dict]:
    """Return what `predict --json` prints."""
    assert main(["predict", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_predictions_of_the_validation_images_agree_with_the_evaluation(run, capsys):
    assert main(["eval", str(run), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    rows = predicted(capsys, run, run.parent / "images" / "val")
    right = [row["classes"][0]["class"] == Path(row["file"]).parent.name for row in rows]
    five = [
        Path(row["file"]).parent.name in [item["class"] for item in row["classes"]] for row in rows
    ]
    assert 100 * sum(right) / len(right) == pytest.approx(whole["top1_percent"])
    assert 100 * sum(five) / len(five) == pytest.approx(whole["top5_percent"])
    shares = [item["probability"] for item in rows[0]["classes"]]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1 + 1e-6


def test_outputs_that_are_not_finite_are_an_error_and_no_prediction(run, capsys):
    found = load(run)
    found.model.fc.weight.data.fill_(3e38)  # finite, as all weights that are loaded
    write_weights(found.model, run / "weights.safetensors", found.about)
    images = str(run.parent / "images" / "val" / "pattern0")
    assert main(["predict", str(run), images]) == 1
    said = capsys.readouterr()
    assert "nan" not in said.out
    assert "outputs for this image are not finite" in said.err
    assert main(["eval", str(run)]) == 1
    assert "%" not in capsys.readouterr().out


def test_images_that_cannot_be_read_are_reported_and_the_others_named(run, capsys):
    folder = run.parent / "mixed"
    folder.mkdir()
    (folder / "a.jpg").write_text("no image")
    (folder / "b.jpg").write_bytes(
        next((run.parent / "images/val/pattern0").iterdir()).read_bytes()[:300]
    )
    Image.new("RGB", (20, 20)).save(folder / "black.png")
    Image.new("L", (50, 30), 90).save(folder / "grey.png")
    table = folder / "classes.csv"
    assert main(["predict", str(run), str(folder), "--csv", str(table)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    rows = {Path(row["file"]).name: row for row in csv.DictReader(table.open())}
    assert list(rows) == ["a.jpg", "b.jpg", "black.png", "grey.png"]
    assert [name for name, row in rows.items() if row["error"]] == ["a.jpg", "b.jpg"]
    assert [name for name, row in rows.items() if not row["class_1"]] == ["a.jpg", "b.jpg"]
    grey = rows["grey.png"]
    assert float(grey["probability_1"]) >= float(grey["probability_2"])
    head, first, second = said.err.splitlines()
    assert head == "2 of 4 images cannot be read:"
    assert "a.jpg is not an image" in first
    assert "b.jpg" in second
    assert main(["predict", str(run), str(folder), "--strict"]) == 3
    assert main(["predict", str(run), str(folder / "a.jpg")]) == 3
    assert "1 of 1" in capsys.readouterr().err


def test_only_some_of_many_unreadable_images_are_named(run, capsys):
    folder = run.parent / "bad"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:02}.jpg").write_text("no image")
    assert main(["predict", str(run), str(folder)]) == 3
    err = capsys.readouterr().err
    assert "09.jpg" in err
    assert "10.jpg" not in err
    assert "and 2 more" in err


def test_images_may_be_named_by_a_pattern_and_classes_counted(run, capsys):
    rows = predicted(capsys, run, run.parent / "images" / "val" / "*" / "1.jpg", "--top", "2")
    assert [Path(row["file"]).parent.name for row in rows] == sorted(CLASSES)
    assert {len(row["classes"]) for row in rows} == {2}
    assert {len(row["classes"]) for row in predicted(capsys, run, rows[0]["file"], "--top=99")} == {
        10
    }


def test_a_pattern_finds_each_image_once_whatever_links_there_are(run, capsys, tmp_path):
    image = next((run.parent / "images" / "val" / "pattern0").iterdir())
    top = tmp_path / "top"
    for name in ("a.jpg", "b/b.jpg", "b/.c.jpg", ".d/d.jpg"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).symlink_to(image)
    for link in ("e", "f"):
        (top / link).symlink_to(".")

    def found(pattern: str) -> list[str]:
        rows = predicted(capsys, run, top / pattern)
        return [str(Path(row["file"]).relative_to(top)) for row in rows]

    assert found("**/*.jpg") == found("**") == ["a.jpg", "b/b.jpg"]
    assert found(".d/*") == [".d/d.jpg"]
    assert found("**/.*.jpg") == ["b/.c.jpg"]


def test_a_folder_of_too_many_folders_is_refused(run, capsys, tmp_path):
    (tmp_path / ("a/" * 102)).mkdir(parents=True)
    assert main(["predict", str(run), str(tmp_path / "a")]) == 3
    assert "cannot be read: More than 100 folders in one another" in capsys.readouterr().err


def test_a_table_names_the_five_best_classes_of_each_image(run, capsys):
    image = run.parent / "images" / "val" / "pattern3" / "1.jpg"
    assert main(["predict", str(run), str(image), "launch.device=cpu"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == str(image)
    assert len(rest) == 5
    assert all("pattern" in line for line in rest)
