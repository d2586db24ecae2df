"""Every problem of a data folder is found, with a fix.

A valid folder has nothing to fix.
"""

import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data import survey_images
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.images.decode import FORMATS
from resnet_recipes.doctor import Finding, get_exit_code, to_json
from resnet_recipes.doctor import data as doctor_data
from resnet_recipes.doctor.data import check_data
from tests.shared.checks import get_problem
from tests.shared.tables import parse_rows


def get_only_finding(findings: list[Finding], level: str) -> Finding:
    at_level = [finding for finding in findings if finding.level == level]
    assert len(at_level) == 1, at_level
    return at_level[0]


def test_healthy_data_has_only_ok_findings(image_folder):
    steps = []
    findings = check_data(image_folder, progress=lambda done, total: steps.append((done, total)))
    assert [finding.what for finding in findings] == [
        "train: 6 images in 3 classes",
        "val: 3 images in 3 classes",
        "9 of 9 images were decoded",
    ]
    assert get_exit_code(findings) == 0
    assert steps == [(9, 9)]
    assert to_json("data", findings)["findings"][0]["level"] == "ok"


def test_ignored_file_without_suffix_is_ok(image_folder):
    (image_folder / "train/bee/README").touch()
    findings = check_data(image_folder)
    assert "ignored because of their suffixes: 1 without a suffix" in [
        finding.what for finding in findings
    ]
    assert {finding.level for finding in findings} == {"ok"}


def test_missing_folder_is_reported_as_absent(tmp_path):
    (finding,) = check_data(tmp_path / "nope")
    assert finding.what == f"{tmp_path / 'nope'} does not exist"


@pytest.mark.parametrize("missing", ["val/bee", "train/bee", "train"])
def test_doctor_reports_missing_split_as_training_does(image_folder, missing):
    shutil.rmtree(image_folder / missing)
    problem = get_problem(NotReadyError, survey_images, DataConfig(root=str(image_folder)))
    finding = get_only_finding(check_data(image_folder), "fix")
    assert problem.clause.removeprefix("train: ").removeprefix("val: ") in finding.what
    assert finding.fix == tuple(map(problem.format_fix, problem.advice))


def test_one_image_per_class_is_decoded_and_explained(image_folder):
    shutil.rmtree(image_folder / "val")
    for folder in (image_folder / "train").iterdir():
        for path in sorted(folder.iterdir())[1:]:
            path.unlink()
    findings = check_data(image_folder)
    finding = get_only_finding(findings, "fix")
    assert finding.what == f"{image_folder} has no validation images"
    assert "`eval` needs neither" in str(finding.fix)
    assert findings[-1].what.endswith("images were decoded")


def test_image_in_both_splits_is_found_by_content(image_folder):
    shutil.copy(image_folder / "train/ant/ant0.jpg", image_folder / "val/cat/renamed.jpg")
    finding = get_only_finding(check_data(image_folder), "warn")
    assert finding.what.startswith("validation images that are identical to training images")
    assert finding.paths == (
        f"{image_folder / 'val/cat/renamed.jpg'}  {image_folder / 'train/ant/ant0.jpg'}",
    )


def ruin_image(kind: str, path: Path) -> None:
    image = Image.open(path)
    image.load()
    if kind == "cut short":
        path.write_bytes(path.read_bytes()[:-200])
    elif kind == "no image":
        path.write_text("hello")
    elif kind == "png":
        image.save(path, "PNG")
    elif kind == "rotated":
        exif = image.getexif()
        exif[0x0112] = 6
        image.save(path, exif=exif)
    else:
        image.convert(kind).save(path, "TIFF" if kind == "I;16" else "JPEG")


@pytest.mark.parametrize(
    ("kind", "level", "meaning"),
    parse_rows(
        """
cut short | fix | unreadable images in train: 1
no image | fix | unreadable images in train: 1
png | ok | suffix does not match
CMYK | ok | CMYK
rotated | warn | EXIF
I;16 | ok | more than 8 bits
L | ok | grayscale
"""
    ),
)
def test_doctor_reports_unusual_image_with_its_level(image_folder, kind, level, meaning):
    path = image_folder / "train/bee/bee1.jpg"
    ruin_image(kind, path)
    findings = check_data(image_folder)
    (finding,) = (finding for finding in findings if meaning in finding.what)
    assert finding.level == level
    assert bool(finding.fix) == (level != "ok")
    assert [place[: len(str(path))] for place in finding.paths] == [str(path)]
    assert (get_exit_code(findings) == 0) == (level != "fix")


def test_unreadable_image_is_named_with_reason(image_folder):
    (image_folder / "train/bee/bee0.jpg").write_text("hello")
    (image_folder / "train/bee/bee1.jpg").unlink()
    os.mkfifo(image_folder / "train/bee/bee1.jpg")
    finding = get_only_finding(check_data(image_folder), "fix")
    assert [path.partition("bee/")[2] for path in finding.paths] == [
        f"bee0.jpg is not an image of a known format ({', '.join(FORMATS)})",
        "bee1.jpg cannot be read: Not a regular file",
    ]
    assert "data.on_bad_image=skip" in finding.fix


def test_wrong_folder_suggests_the_right_folder(image_folder):
    finding = get_only_finding(check_data(image_folder / "val"), "fix")
    assert finding.fix == (f"resnet-recipes doctor data {image_folder}",)


@pytest.mark.parametrize("is_empty", [False, True])
def test_unreadable_images_are_not_duplicates(is_empty, image_folder):
    for place in ("train/ant/ant0.jpg", "val/cat/cat9.jpg"):
        (image_folder / place).unlink(missing_ok=True)
        (image_folder / place).symlink_to(image_folder / "nowhere.jpg")
    if is_empty:
        (image_folder / "nowhere.jpg").touch()
    whats = [finding.what for finding in check_data(image_folder)]
    assert not [what for what in whats if "identical to training" in what]


def test_incomplete_imagenet_is_reported(image_folder, monkeypatch):
    monkeypatch.setattr(doctor_data, "is_imagenet", lambda classes: True)
    monkeypatch.setattr(doctor_data, "IMAGENET_COUNTS", {"train": 6, "val": 50})
    assert get_only_finding(check_data(image_folder), "warn").what.startswith(
        "val looks like ImageNet"
    )


def test_second_image_of_phone_jpeg_is_not_animation(image_folder):
    path = image_folder / "train/bee/bee1.jpg"
    image = Image.open(path)
    image.load()
    image.save(path, "MPO", save_all=True, append_images=[image.rotate(90)])
    assert not [finding for finding in check_data(image_folder) if finding.level != "ok"]
