"""Validation images that are copies of training images are noted before a run, from a sample."""

import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from resnet_recipes import data
from resnet_recipes.data.files import copies
from resnet_recipes.data.files.copies import find_copies
from resnet_recipes.data.files.listing import Listing
from tests.data.loaders import make_small_config


@pytest.fixture
def copied_folder(image_folder: Path, tmp_path: Path) -> Path:
    for split in ("train", "val"):
        shutil.copytree(image_folder / "train", tmp_path / "twice" / split)
    return tmp_path / "twice"


SAME = "validation images identical to training images:"


def get_note(root: Path, **changes) -> str:
    notes = data.survey_images(make_small_config(root, **changes)).notes
    return next((f"{note.text}\n{note.fix}" for note in notes if "identical" in note.text), "")


def test_plan_notes_validation_equal_to_training(copied_folder, image_folder):
    assert get_note(copied_folder).startswith(f"{SAME} 32 of 32 compared, such as ")
    assert get_note(copied_folder).endswith(f"\nresnet-recipes doctor data {copied_folder}")
    assert not get_note(image_folder)


def test_copies_are_found_under_other_names_and_links(copied_folder, image_folder):
    for number, path in enumerate(sorted((copied_folder / "val").glob("*/*"))):
        path.rename(path.with_name(f"renamed{number}.jpg"))
    assert get_note(copied_folder).startswith(f"{SAME} 32 of 32")
    shutil.rmtree(copied_folder / "val")
    (copied_folder / "val").symlink_to(copied_folder / "train")
    assert get_note(copied_folder).startswith(f"{SAME} 32 of 32")
    (copied_folder / "val").unlink()
    shutil.copytree(image_folder / "val", copied_folder / "val")
    shutil.copy(copied_folder / "val/bee/001.jpg", copied_folder / "train/ant/copy.jpg")
    assert get_note(copied_folder).startswith(f"{SAME} 1 of 11 compared, such as ")
    assert str(copied_folder / "val/bee/001.jpg") in get_note(copied_folder)


def test_copies_split_by_val_share_are_noted(copied_folder):
    root = (copied_folder / "train").rename(copied_folder.parent / "flowers")
    assert not get_note(root, val_share=0.3)
    for path in list(root.glob("*/*")):
        shutil.copy(path, path.with_name(f"copy-{path.name}"))
    assert get_note(root, val_share=0.3)


def test_images_of_equal_size_are_compared_by_name(tmp_path, monkeypatch):
    read = []
    real = copies.read_file
    monkeypatch.setattr(copies, "read_file", lambda path: read.append(path) or real(path))
    for split in ("train", "val"):
        for number in range(100):
            path = tmp_path / split / "ab"[number % 2] / f"{number}.bmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (number, 0, 255)).save(path)
    train, val = (Listing.of(tmp_path / split) for split in ("train", "val"))
    assert len(find_copies(train, val)) == 32
    assert len(read) == 2 * 32
    for path in (tmp_path / "train").glob("*/*"):
        Image.new("RGB", (8, 8), (0, 1, 2)).save(path)
    assert not find_copies(train, val)
    assert len(read) <= 2 * 32 + 32 * 6


def test_unfetched_or_unreadable_files_are_not_copies(copied_folder):
    for path in [*copied_folder.glob("*/*/*")]:
        size = path.stat().st_size
        path.write_bytes(b"")
        os.truncate(path, size)  # like the placeholders of remote images
    assert not get_note(copied_folder)
    for path in [*(copied_folder / "val").glob("*/*")]:
        path.unlink()
        path.symlink_to(copied_folder / "nowhere")
    assert not get_note(copied_folder)


def test_find_copies_skips_the_image_itself(image_folder):
    listing = Listing.of(image_folder / "train")
    assert find_copies(listing, listing) == []
