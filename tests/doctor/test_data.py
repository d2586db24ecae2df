"""Every ill of a data folder is found and comes with what to type; a healthy one has nothing to fix."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from resnet_recipes.doctor import Finding, as_json, exit_code
from resnet_recipes.doctor.data import check_data, estimate


def only(findings: list[Finding], level: str) -> Finding:
    """Return the only finding of a level."""
    found = [finding for finding in findings if finding.level == level]
    assert len(found) == 1, found
    return found[0]


def test_healthy_data_have_nothing_to_fix(root):
    steps = []
    findings = check_data(root, progress=lambda done, total: steps.append((done, total)))
    assert [finding.what for finding in findings] == [
        "train: 6 images in 3 classes", "val: 3 images in 3 classes", "all 9 images were decoded",
    ]
    assert exit_code(findings) == 0
    assert steps == [(9, 9)]
    assert as_json("data", findings)["findings"][0]["level"] == "ok"


def test_a_flat_validation_set_is_found_with_the_command_that_helps(root):
    for path in list((root / "val").glob("*/*")):
        path.rename(root / "val" / path.name)
    for folder in ("ant", "bee", "cat"):
        (root / "val" / folder).rmdir()
    findings = check_data(root)
    finding = only(findings, "fix")
    assert "val has 3 files and no class folders (train has 3 classes)" in finding.what
    assert finding.fix == f"resnet-recipes doctor data {root} --fix-val LOC_val_solution.csv"
    assert exit_code(findings) == 3


def test_classes_that_one_split_lacks_are_named(root):
    shutil.rmtree(root / "val/bee")
    finding = only(check_data(root), "fix")
    assert "lacks 1" in finding.what
    assert finding.paths == ("bee",)


def test_empty_classes_are_named(root):
    (root / "train/bee/bee0.jpg").unlink()
    (root / "train/bee/bee1.jpg").unlink()
    assert only(check_data(root), "fix").paths == ("bee",)


def test_hidden_folders_are_no_classes(root):
    (root / "train/.ipynb_checkpoints").mkdir()
    assert exit_code(check_data(root)) == 0


def test_a_missing_split_is_named(root):
    shutil.rmtree(root / "val")
    assert "no val/" in only(check_data(root), "fix").what


def test_an_image_in_both_splits_is_found_by_its_content(root):
    shutil.copy(root / "train/ant/ant0.jpg", root / "val/cat/renamed.jpg")
    finding = only(check_data(root), "warn")
    assert "1 validation images are training images" in finding.what
    assert finding.paths[0].endswith("renamed.jpg")


def ruin(kind: str, path: Path) -> None:
    """Turn an image into one of a certain kind."""
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


@pytest.mark.parametrize(("kind", "level", "meaning"), [
    ("cut short", "fix", "cannot be decoded"),
    ("no image", "fix", "cannot be decoded"),
    ("png", "warn", "another kind"),
    ("CMYK", "warn", "CMYK"),
    ("rotated", "warn", "EXIF"),
])
def test_an_odd_image_is_found(root, kind, level, meaning):
    path = root / "train/bee/bee1.jpg"
    ruin(kind, path)
    finding = only(check_data(root), level)
    assert meaning in finding.what
    assert finding.paths == (str(path),)


def test_deep_images_are_found(root):
    ruin("I;16", root / "train/bee/bee1.jpg")
    assert any("16 bits" in finding.what for finding in check_data(root) if finding.level == "warn")


def test_grey_images_are_fine(root):
    ruin("L", root / "train/bee/bee1.jpg")
    assert exit_code(check_data(root)) == 0
    assert any("grey" in finding.what for finding in check_data(root))


def test_the_estimate_counts_all_images(root):
    said = estimate(root)
    assert said.images == 9
    assert said.minutes > 0
