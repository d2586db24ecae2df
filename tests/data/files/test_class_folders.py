"""Splits and copies of a dataset are not used as classes unless the user confirms it."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.convert.splits import plan_files
from resnet_recipes.doctor.data import check_data
from tests.data.loaders import CLASSES, count_images, explain_rejected_folder, make_small_config
from tests.shared.tables import parse_rows


@pytest.fixture
def half_folders(image_folder: Path, tmp_path: Path) -> Path:
    """Return a folder with the images of both splits under unknown names."""
    for split, name in (("train", "one half"), ("val", "other")):
        shutil.copytree(image_folder / split, tmp_path / "halves" / name)
    return tmp_path / "halves"


def test_similar_class_folders_are_rejected_everywhere(half_folders):
    message = f"data.root={half_folders} has the same folders (ant, bee, cat) in one half, other"
    share = explain_rejected_folder(half_folders, val_share=0.1)
    assert message in share
    assert explain_rejected_folder(half_folders) == share
    assert "val_share" not in share
    assert "nested_classes=true" not in share
    (finding,) = [finding for finding in check_data(half_folders) if finding.level == "fix"]
    assert finding.what in share.replace("data.root=", "")
    with pytest.raises(NotReadyError, match="has the same folders"):
        plan_files(half_folders, half_folders / "all.beton", ConvertOptions())


def test_suggested_links_create_the_splits(half_folders):
    links = explain_rejected_folder(half_folders).splitlines()[1].removeprefix("    try:   ")
    for link in links.split(" && "):
        subprocess.run(shlex.split(link), check=True)
    assert count_images(half_folders) == (37, 11, CLASSES)


def test_similar_class_folders_are_accepted_when_confirmed(half_folders):
    named = {"val_share": 0.1, "nested_classes": False}
    assert count_images(half_folders, **named)[2] == ("one half", "other")
    facts = data.survey_images(make_small_config(half_folders, **named))
    assert "nested" not in str(facts.notes)
    assert (
        len(
            plan_files(half_folders, half_folders / "a.beton", ConvertOptions(nested_classes=False))
        )
        == 1
    )


@pytest.mark.parametrize(
    ("ants", "bees", "parts"),
    parse_rows(
        """
ant/train ant/val | bee/train bee/val | a split for each class  # PATH/train/CLASS
ant_train ant_test | bee_train bee_test | with names of splits: ant_test, ant_train
trainset | valset | with names of splits: trainset, valset
A/ant B/ant C/ant | A/bee B/bee C/bee | in A, B, C: they look like splits  # data={root}/A data.val
train_x/ant val_x/ant train_y/ant | train_x/bee val_x/bee val_y/bee | ln -s train_x {root}/train
A/ant B/ANT | A/Bee B/bee | has the same folders
"""
    ),
)
def test_classes_that_look_like_splits_are_rejected(image_folder, tmp_path, ants, bees, parts):
    for name, paths in (("ant", ants), ("bee", bees)):
        for path in paths.split():
            shutil.copytree(image_folder / "train" / name, tmp_path / path)
    error = explain_rejected_folder(tmp_path, val_share=0.1)
    for part in parts.format(root=tmp_path).split("  # "):
        assert part in error


@pytest.mark.parametrize(
    ("ants", "bees"),
    parse_rows(
        """
ant/images | bee/images
ant ant/crops ant/flips | bee bee/crops bee/flips
ant/other ant/red | bee/other bee/wild
train_ant | train_bee
steam_train | test_tube
"""
    ),
)
def test_folders_resembling_splits_are_classes(image_folder, tmp_path, ants, bees):
    for name, paths in (("ant", ants), ("bee", bees)):
        for path in paths.split():
            (tmp_path / path).mkdir(parents=True)
            count = 2 if "crops" in path or "flips" in path else 9
            for image in sorted((image_folder / "train" / name).iterdir())[:count]:
                shutil.copy(image, tmp_path / path)
    expected = {path.partition("/")[0] for path in (*ants.split(), *bees.split())}
    assert {*count_images(tmp_path, val_share=0.2)[2]} == expected


def test_nested_classes_are_suggested_only_if_unambiguous(image_folder, tmp_path):
    offer = "data.nested_classes=true"
    for path in ("hot/ant", "hot/other", "cold/bee", "cold/other"):
        shutil.copytree(image_folder / "train" / "ant", tmp_path / path)
    assert offer not in str(data.survey_images(make_small_config(tmp_path, val_share=0.1)).notes)
    (tmp_path / "cold/other").rename(tmp_path / "cold/cat")
    assert offer in str(data.survey_images(make_small_config(tmp_path, val_share=0.1)).notes)
