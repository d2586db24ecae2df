"""All problems of a folder are reported before anything starts, with known fixes."""

import os
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes import data
from resnet_recipes.commands import dispatch
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.survey import describe_imbalance
from tests.data.loaders import CLASSES, count_images, explain_rejected_folder, make_small_config


def test_survey_rejects_missing_and_empty_folders(tmp_path):
    assert "does not exist" in explain_rejected_folder(tmp_path / "nowhere")
    assert "has no images" in explain_rejected_folder(tmp_path)
    (tmp_path / "val" / "ant").mkdir(parents=True)
    assert "has no training images" in explain_rejected_folder(tmp_path)


def test_suggested_command_for_flat_validation_works(image_folder, tmp_path, monkeypatch):
    copied_images = Path(shutil.copytree(image_folder, tmp_path / "two words"))
    lines = []
    for path in list((copied_images / "val").glob("*/*")):
        name = f"ILSVRC2012_val_{path.name}"
        lines.append(f"{name},{path.parent.name}\n")
        path.rename(copied_images / "val" / name)
    for name in CLASSES:
        (copied_images / "val" / name).rmdir()
    fix = explain_rejected_folder(copied_images).splitlines()[1]
    monkeypatch.chdir(tmp_path)
    Path("LOC_val_solution.csv").write_text("".join(lines))
    _, _, _, *typed = shlex.split(fix)
    assert dispatch.run(["doctor", *typed]) == 0
    assert count_images(tmp_path / "two words-by-class") == (37, 11, CLASSES)


def test_flat_validation_suggests_sorting_by_a_list(copied_images):
    for path in list((copied_images / "val").glob("*/*")):
        path.rename(copied_images / "val" / f"{path.parent.name}{path.name}")
    for name in CLASSES:
        (copied_images / "val" / name).rmdir()
    command = f"resnet-recipes doctor data {copied_images} --fix-val MAP"
    assert explain_rejected_folder(copied_images).endswith(command)


def test_misspelled_classes_get_suggestion(copied_images):
    (copied_images / "val" / "bee").rename(copied_images / "val" / "Bees")
    (copied_images / "val" / "ant").rename(copied_images / "val" / "ANT")
    message = explain_rejected_folder(copied_images)
    assert "has ant, bee only in train and ANT, Bees only in val" in message
    assert "hint:  in val, did you mean ant for ANT and bee for Bees?" in message


def list_notes(root: Path) -> list[str]:
    return [note.text for note in data.survey_images(make_small_config(root)).notes]


def test_similar_class_names_are_noted(copied_images):
    assert not [text for text in list_notes(copied_images) if "same name" in text]
    for split in ("train", "val"):
        for name in ("Bee", "bee - Copy", "bees"):
            shutil.copytree(copied_images / split / "bee", copied_images / split / name)
    note = "classes Bee and bee and bee - Copy have almost the same name"
    assert note in list_notes(copied_images)


def test_images_outside_class_folders_are_noted(copied_images):
    assert not [text for text in list_notes(copied_images) if "outside" in text]
    image = next((copied_images / "val").glob("*/*"))
    for name in ("z.JPG", "train/a.jpg", "train/.hidden.jpg", "val/notes.txt"):
        shutil.copy(image, copied_images / name)
    assert "2 images outside class folders (ignored): train/a.jpg, z.JPG" in list_notes(
        copied_images
    )


def test_class_mismatches_are_reported_together(copied_images):
    shutil.move(copied_images / "val" / "bee", copied_images / "val" / "wasp")
    shutil.rmtree(copied_images / "train" / "cat")
    (copied_images / "train" / "cat").mkdir()
    message = explain_rejected_folder(copied_images)
    assert "has bee only in train and wasp only in val" in message
    assert "did you mean" not in message
    assert "has no images in train/cat, but has some in val" in message


def test_class_spelled_in_two_ways_is_one_problem(copied_images):
    shutil.move(copied_images / "val" / "bee", copied_images / "val" / "Bee")
    line, *hints = explain_rejected_folder(copied_images).splitlines()
    assert line.endswith(" has bee only in train and Bee only in val")
    assert [hint.strip() for hint in hints] == [
        "hint:  in val, did you mean bee for Bee?",
        "hint:  rename or remove these classes, or add their images",
    ]


def test_images_without_class_folders_are_one_problem(copied_images):
    for split in ("train", "val"):
        for path in list((copied_images / split).glob("*/*")):
            path.rename(copied_images / split / path.name)
        for name in CLASSES:
            (copied_images / split / name).rmdir()
    line, fix = explain_rejected_folder(copied_images).split("\n", 1)
    assert f"{copied_images} contains images without class folders" in line
    assert "--fix-val" not in fix
    assert "a table with the columns path and label" in fix


@pytest.mark.parametrize("splits", [["train"], ["val"], ["train", "val"]])
def test_empty_class_folder_is_one_problem(copied_images, splits):
    for split in splits:
        (copied_images / split / "eel").mkdir()
    line, fix = explain_rejected_folder(copied_images).splitlines()
    folders = ", ".join(f"{split}/eel" for split in splits)
    these = "this folder" if len(splits) == 1 else "these folders"
    assert line == f"data.root={copied_images} has no images in {folders}"
    assert fix.strip() == f"hint:  add images, or remove {these}"


def test_hidden_files_and_archive_debris_are_ignored(copied_images):
    for name in (
        "train/.ipynb_checkpoints/a.jpg",
        "train/ant/.hidden.jpg",
        "train/ant/notes.txt",
        "train/README.md",
        "train/__MACOSX/ant/thumbnail.jpg",
        "train/ant/@eaDir/thumbnail.jpg",
        "val/lost+found/thumbnail.jpg",
    ):
        (copied_images / name).parent.mkdir(parents=True, exist_ok=True)
        (copied_images / name).touch()
    assert count_images(copied_images) == (37, 11, CLASSES)


def test_ignored_file_without_suffix_is_noted_without_advice(copied_images):
    (copied_images / "val" / "bee" / "README").touch()
    note = data.survey_images(make_small_config(copied_images)).notes[0]
    assert note == ("ignored because of their suffixes: 1 without a suffix", ())


@pytest.mark.skipif(
    find_spec("pillow_heif") is not None, reason="pillow-heif is installed: .heic is known"
)
def test_files_of_unknown_kinds_are_counted_and_named(copied_images):
    for number in range(3):
        (copied_images / "train" / "ant" / f"{number}.HEIC").touch()
    (copied_images / "val" / "bee" / "README").touch()
    text = "ignored because of their suffixes: 3 .heic, 1 without a suffix"
    fix = ("pip install pillow-heif", "makes .heic readable; rename JPEG files to .jpg")
    assert data.survey_images(make_small_config(copied_images)).notes[0] == (text, fix)
    for path in (copied_images / "train" / "ant").glob("*.jpg"):
        path.unlink()
    message = explain_rejected_folder(copied_images)
    assert "has no images in train/ant, but has some in val" in message
    assert "(not read: 3 .heic, 1 without a suffix)" in message


@pytest.mark.skipif(
    find_spec("pillow_heif") is not None, reason="pillow-heif is installed: .heic is known"
)
def test_heic_photographs_suggest_installing_pillow_heif(tmp_path):
    for name in ("ant", "bee"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "train" / name / f"{number}.heic").touch()
    line, *fixes = explain_rejected_folder(tmp_path).splitlines()
    assert line.endswith("has no images in train/ant, train/bee (not read: 6 .heic)")
    assert fixes[0].strip() == "try:   pip install pillow-heif"
    assert "remove" not in "".join(fixes)


def test_unprintable_class_names_are_rejected(copied_images):
    for split in ("train", "val"):
        (copied_images / split / "ant").rename(copied_images / split / os.fsdecode(b"ant\xff"))
    assert r"not printable UTF-8 text: 'ant\udcff'" in explain_rejected_folder(copied_images)


def test_linked_classes_count_and_link_loops_end(copied_images):
    (copied_images / "train" / "ant" / "loop").symlink_to(copied_images / "train")
    shutil.move(copied_images / "train" / "bee", copied_images / "elsewhere")
    (copied_images / "train" / "bee").symlink_to(copied_images / "elsewhere")
    (copied_images / "train" / "cat" / "linked.jpg").symlink_to(
        next((copied_images / "elsewhere").iterdir())
    )
    assert count_images(copied_images) == (38, 11, CLASSES)
    facts = data.survey_images(DataConfig(root=str(copied_images)))
    assert facts.backend == "torchvision"
    assert "no train.beton" in facts.details[0]


def test_unequal_classes_suggest_a_setting():
    (note,) = describe_imbalance(np.array([400, 90, 9, 1]), DataConfig())
    text = "classes have from 1 to 400 training images; 2 of them fewer than 20"
    assert note == (text, "data.sampling=sqrt")
    assert not list(describe_imbalance(np.array([400, 90]), DataConfig(sampling="sqrt")))
    assert not list(describe_imbalance(np.array([100, 150]), DataConfig()))
