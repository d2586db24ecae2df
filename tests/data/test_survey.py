"""All problems of a folder are reported before anything starts, with known fixes."""

import os
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from resnet_recipes import data
from resnet_recipes.commands import verbs
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.files import Files
from resnet_recipes.data.files.listing import Listing
from tests.data.conftest import CLASSES, count_images, explain_rejection, make_small_config


def test_missing_and_empty_roots_are_named(tmp_path):
    assert "does not exist" in explain_rejection(make_small_config(tmp_path / "nowhere"))
    assert "has no images" in explain_rejection(make_small_config(tmp_path))
    (tmp_path / "val" / "ant").mkdir(parents=True)
    assert "has no training images" in explain_rejection(make_small_config(tmp_path))


def test_suggested_command_for_flat_validation_works(folder, tmp_path, monkeypatch):
    copied = Path(shutil.copytree(folder, tmp_path / "two words"))
    lines = []
    for path in list((copied / "val").glob("*/*")):
        name = f"ILSVRC2012_val_{path.name}"
        lines.append(f"{name},{path.parent.name}\n")
        path.rename(copied / "val" / name)
    for name in CLASSES:
        (copied / "val" / name).rmdir()
    fix = explain_rejection(make_small_config(copied)).splitlines()[1]
    monkeypatch.chdir(tmp_path)
    Path("LOC_val_solution.csv").write_text("".join(lines))
    _, _, _, *typed = shlex.split(fix)
    assert verbs.run(["doctor", *typed]) == 0
    assert count_images(make_small_config(tmp_path / "two words-by-class")) == (37, 11, CLASSES)


def test_class_mismatches_are_reported_together(copied):
    shutil.move(copied / "val" / "bee", copied / "val" / "wasp")
    shutil.rmtree(copied / "train" / "cat")
    (copied / "train" / "cat").mkdir()
    message = explain_rejection(make_small_config(copied))
    for said in ("has bee in train but not in val", "has cat, wasp in val but not in train"):
        assert said in message


def test_images_without_class_folders_are_one_problem(copied):
    for split in ("train", "val"):
        for path in list((copied / split).glob("*/*")):
            path.rename(copied / split / path.name)
        for name in CLASSES:
            (copied / split / name).rmdir()
    line, fix = explain_rejection(make_small_config(copied)).split("\n", 1)
    assert f"{copied} contains images without class folders" in line
    assert "--fix-val" not in fix
    assert "a table with the columns path and label" in fix


@pytest.mark.parametrize("splits", [["train"], ["val"], ["train", "val"]])
def test_empty_class_folder_is_one_problem(copied, splits):
    for split in splits:
        (copied / split / "eel").mkdir()
    line, fix = explain_rejection(make_small_config(copied)).splitlines()
    assert line == f"data.root={copied} has no images in eel"
    assert fix.strip() == "hint:  add images, or remove these folders from both splits"


def test_hidden_files_and_archive_debris_are_ignored(copied):
    for name in (
        "train/.ipynb_checkpoints/a.jpg",
        "train/ant/.hidden.jpg",
        "train/ant/notes.txt",
        "train/README.md",
        "train/__MACOSX/ant/thumbnail.jpg",
        "train/ant/@eaDir/thumbnail.jpg",
        "val/lost+found/thumbnail.jpg",
    ):
        (copied / name).parent.mkdir(parents=True, exist_ok=True)
        (copied / name).touch()
    assert count_images(make_small_config(copied)) == (37, 11, CLASSES)


@pytest.mark.skipif(
    find_spec("pillow_heif") is not None, reason="pillow-heif is installed: .heic is known"
)
def test_files_of_unknown_kinds_are_counted_and_named(copied):
    for number in range(3):
        (copied / "train" / "ant" / f"{number}.HEIC").touch()
    (copied / "val" / "bee" / "README").touch()
    said = (
        "ignored because of their suffixes: 3 .heic, 1 without a suffix; "
        "pip install pillow-heif  makes .heic readable"
    )
    assert data.measure(make_small_config(copied)).notes[0] == said
    for path in (copied / "train" / "ant").glob("*.jpg"):
        path.unlink()
    message = explain_rejection(make_small_config(copied))
    assert "has ant in val but not in train" in message
    assert "(not read: 3 .heic, 1 without a suffix" in message


def test_impossible_class_names_are_rejected(copied):
    for split in ("train", "val"):
        (copied / split / "ant").rename(copied / split / os.fsdecode(b"ant\xff"))
    assert r"not printable UTF-8 text: 'ant\udcff'" in explain_rejection(make_small_config(copied))


def test_linked_classes_count_and_link_loops_end(copied):
    (copied / "train" / "ant" / "loop").symlink_to(copied / "train")
    shutil.move(copied / "train" / "bee", copied / "elsewhere")
    (copied / "train" / "bee").symlink_to(copied / "elsewhere")
    (copied / "train" / "cat" / "linked.jpg").symlink_to(next((copied / "elsewhere").iterdir()))
    assert count_images(make_small_config(copied)) == (38, 11, CLASSES)
    facts = data.measure(DataConfig(root=str(copied)))
    assert facts.backend == "torchvision"
    assert "no train.beton" in facts.details[0]


def test_files_are_sorted_by_class_and_name(copied):
    (copied / "train" / "bee" / "a b\n\u00e9.jpg").touch()
    files = Files(Listing.of(copied / "train"))
    paths = [Path(files.path(index)) for index in range(len(files))]
    assert paths == [
        path for name in CLASSES for path in sorted((copied / "train" / name).iterdir())
    ]
    assert [path.parent.name for path in paths] == [CLASSES[label] for label in files.labels]
