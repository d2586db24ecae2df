"""`resnet-recipes predict` for files, folders and patterns, with its table and gallery."""

import re
from collections.abc import Callable
from os.path import relpath
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from resnet_recipes.network.load import load
from resnet_recipes.network.weights import write_weights
from tests.shared.images import CLASSES
from tests.shared.tables import read_csv_rows

READABLE_IMAGE = "images/val/pattern0/1.jpg"


@pytest.fixture
def run_predict(
    folder_with_weights: Path, run_json: Callable[..., Any]
) -> Callable[[str], list[dict]]:
    return lambda arguments: run_json(f"resnet-recipes predict mine {arguments}")


def test_predict_rejects_non_finite_outputs(folder_with_weights, run_command):
    network = load(folder_with_weights)
    network.model.fc.weight.data.fill_(3e38)  # finite, like all weights that load
    write_weights(network.model, folder_with_weights / "weights.safetensors", network.about)
    streams = run_command("resnet-recipes predict mine images/val/pattern0", 1)
    assert "nan" not in streams.out
    assert "outputs for this image are not finite" in streams.err
    assert "%" not in run_command("resnet-recipes eval mine", 1).out


def test_predict_gallery_shows_images_with_heat_maps(folder_with_weights, run_command):
    Path("bad.jpg").write_text("no image")
    streams = run_command(
        f"resnet-recipes predict mine bad.jpg {READABLE_IMAGE} images/val/pattern3 --gallery p.html"
    )
    page = Path("p.html").read_text()
    assert "label: " not in page
    assert "4 of 5 images. In the copy of an image, pixels that do not support" in page
    captions = re.findall(r"<figcaption>([\d.]+)% (\w+)<br><small>(.*?)</small>", page)
    assert len(captions) == page.count("base64,") == 4
    for share, name, file in captions:
        line = re.search(rf"{re.escape(file)}\n +([\d.]+)% +{name}\n", streams.out)
        assert float(share) == pytest.approx(float(line[1]), abs=0.06), streams.out


def test_predict_reports_unreadable_images_and_classifies_others(folder_with_weights, run_command):
    folder = Path("mixed")
    folder.mkdir()
    (folder / "a.jpg").write_text("no image")
    (folder / "b.jpg").write_bytes(Path(READABLE_IMAGE).read_bytes()[:300])
    Image.new("RGB", (20, 20)).save(folder / "black.png")
    Image.new("L", (50, 30), 90).save(folder / "gray.png")
    streams = run_command("resnet-recipes predict mine mixed --csv classes.csv")
    assert streams.out == ""
    rows = read_csv_rows("classes.csv")
    assert [Path(row["file"]).name for row in rows] == ["a.jpg", "b.jpg", "black.png", "gray.png"]
    assert [bool(row["error"]) for row in rows] == [True, True, False, False]
    assert [bool(row["class_1"]) for row in rows] == [False, False, True, True]
    assert float(rows[3]["probability_1"]) >= float(rows[3]["probability_2"])
    assert list(rows[3])[-3:] == ["class_5", "probability_5", "error"]
    saved, head, first, second = streams.err.splitlines()
    assert saved == "saved classes.csv"
    assert head == "2 of 4 images cannot be read:"
    assert "a.jpg is not an image" in first
    assert "b.jpg" in second
    run_command("resnet-recipes predict mine mixed --strict", 3)
    message = run_command("resnet-recipes predict mine mixed/a.jpg", 3).err
    assert message.startswith(f"error: {folder.absolute()}/a.jpg is not an image")
    assert message.endswith("\n\n[exit 3]\n")


def test_predict_replaces_only_its_own_pages(folder_with_weights, run_command):
    table, page = "path,label\n1.jpg,ants\n", "<!doctype html>\n"
    Path("labels.csv").write_text(table)
    Path("mine.html").write_text(page)
    err = run_command(
        f"resnet-recipes predict mine {READABLE_IMAGE} --csv labels.csv --gallery mine.html", 2
    )
    assert "--csv labels.csv already exists, and nothing is overwritten" in err.err
    assert "--csv labels2.csv" in err.err
    assert "--gallery mine2.html" in err.err
    assert (Path("labels.csv").read_text(), Path("mine.html").read_text()) == (table, page)
    Path("own.csv").touch()
    for name in ("labels2", "own", "labels3"):
        run_command(
            f"resnet-recipes predict mine {READABLE_IMAGE} --csv {name}.csv --gallery mine2.html"
        )
        assert Path(f"{name}.csv").read_text().count("\n") == 2


def test_predict_names_only_ten_unreadable_images(folder_with_weights, run_command):
    Path("bad").mkdir()
    for number in range(12):
        Path(f"bad/{number:02}.jpg").write_text("no image")
    err = run_command("resnet-recipes predict mine bad", 3).err
    assert "09.jpg" in err
    assert "10.jpg" not in err
    assert "and 2 more" in err


def test_predict_accepts_pattern_and_number_of_classes(run_predict):
    rows = run_predict("images/val/*/1.jpg --top 2")
    assert [Path(row["file"]).parent.name for row in rows] == sorted(CLASSES)
    assert {len(row["classes"]) for row in rows} == {2}
    assert len(run_predict(f"{READABLE_IMAGE} --top=99")[0]["classes"]) == 10


def test_predict_prints_names_of_imagenet_classes(folder_with_weights, run_command, monkeypatch):
    monkeypatch.setattr("resnet_recipes.data.imagenet.find_english_name", lambda name: "bee")
    out = run_command(f"resnet-recipes predict mine {READABLE_IMAGE} --top 1").out
    (line,) = (line for line in out.splitlines() if "%" in line)
    assert line.endswith(" bee")


def test_predict_suggests_name_like_missing_folder(folder_with_weights, run_command, tmp_path):
    (tmp_path / "plain_disc").mkdir()
    streams = run_command(f"resnet-recipes predict {folder_with_weights} plain_disk", code=3)
    assert "plain_disk does not exist" in streams.err
    assert "use:   plain_disc" in streams.err
    (tmp_path / "rose.jpg").touch()  # has the same extension, but another name
    streams = run_command(f"resnet-recipes predict {folder_with_weights} nope.jpg", code=3)
    assert "use:" not in streams.err


def test_predict_pattern_finds_linked_image_once(run_predict):
    top = Path("top")
    for name in ("a.jpg", "b/b.jpg", "b/.c.jpg", ".d/d.jpg"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).symlink_to(Path(READABLE_IMAGE).absolute())
    for link in ("e", "f"):
        (top / link).symlink_to(".")
    for pattern, expected in (
        ("top/**/*.jpg", ["top/a.jpg", "top/b/b.jpg"]),
        ("top/**", ["top/a.jpg", "top/b/b.jpg"]),
        ("top/.d/*", ["top/.d/d.jpg"]),
        ("top/**/.*.jpg", ["top/b/.c.jpg"]),
    ):
        assert [relpath(row["file"]) for row in run_predict(pattern)] == expected


def test_predict_prints_probabilities_of_best_classes(folder_with_weights, run_command):
    folder_with_weights.rename("run")  # also a setting
    line = f"resnet-recipes predict run {READABLE_IMAGE} launch.device=cpu"
    first, *best = run_command(line).out.splitlines()
    assert relpath(first) == READABLE_IMAGE
    every = run_command(f"{line} --top 10").out.splitlines()[1:]
    assert best == every[:5]
    assert all("pattern" in text for text in every)
    assert sum(float(text.split("%")[0]) for text in every) == pytest.approx(100, abs=0.1)
