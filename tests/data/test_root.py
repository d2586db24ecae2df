"""A wrong `data.root` is rejected with the folder that was probably meant."""

import os
import subprocess
from pathlib import Path

import pytest

from resnet_recipes import data
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.root import find_address_problems, find_root_problem, list_classes
from tests.data.loaders import explain_rejected_images
from tests.shared.tables import parse_rows


@pytest.fixture
def cifar_folder(tmp_path: Path) -> Path:
    """Return the folders of a dataset called cifar, without files."""
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (tmp_path / "sets" / "cifar" / split / name).mkdir(parents=True)
    return tmp_path / "sets" / "cifar"


def explain_root_rejection(root: Path | str) -> str:
    """Return the message of `resnet-train data=ROOT`."""
    return explain_rejected_images(DataConfig(root=os.path.abspath(os.path.expanduser(root))))


def test_folders_of_other_programs_are_not_classes(cifar_folder):
    for name in (".ipynb_checkpoints", "__MACOSX", "@eaDir", "lost+found", ".git"):
        (cifar_folder / "train" / name).mkdir()
    (cifar_folder / "train" / "list.txt").touch()
    assert list_classes(cifar_folder / "train") == ["cat", "dog"]


def test_folder_with_splits_or_betons_is_accepted(cifar_folder):
    assert find_root_problem(str(cifar_folder)) is None
    for split in ("train", "val"):
        (cifar_folder.parent / f"{split}.beton").touch()
    assert find_root_problem(str(cifar_folder.parent)) is None


@pytest.mark.parametrize(
    ("path", "message", "fix"),
    parse_rows(
        """
Cifr | does not exist | data={0}
cifar1/train | does not exist | data={0}/train
imagenet | does not exist | {0.parent} contains cifar
cifar/train | is one split; use the folder containing train/ and val/ | data={0}
cifar/train/cat | is one class; use the folder containing train/ and val/ | data={0}
. | a folder in it does | data={0}
half | has only train.beton | hint:  resnet-recipes convert SRC DST
data/demo | does not exist | resnet-train demo
/nowhere/x | does not exist | there is no folder /nowhere
C:\\Users\\me | does not exist | write / instead of \\; in WSL, C:\\ is /mnt/c/
C:/Users/me | does not exist | in WSL, C:\\ is /mnt/c/
"""
    ),
)
def test_wrong_folder_suggests_the_intended_one(path, message, fix, cifar_folder):
    (cifar_folder.parent / "half").mkdir()
    (cifar_folder.parent / "half" / "train.beton").touch()
    error = explain_root_rejection(cifar_folder.parent / path)
    assert message in error
    assert fix.format(cifar_folder) in error


def test_missing_folder_is_explained_in_brief(tmp_path):
    assert explain_root_rejection("/nowhere") == "data.root=/nowhere does not exist"
    for number in range(7):
        (tmp_path / f"d{number}").mkdir()
    assert f"{tmp_path} contains d0, d1, d2, d3, d4 and 2 more" in explain_root_rejection(
        tmp_path / "cifar"
    )


@pytest.mark.parametrize("name", ["cifar_train.beton", "train_500_0.50_90.ffcv"])
def test_ffcv_files_with_other_names_suggest_renaming(tmp_path, name):
    (tmp_path / name).touch()
    assert f"has {name}, but a run needs train.beton and val.beton" in explain_root_rejection(
        tmp_path
    )
    (tmp_path / "cat").mkdir()
    assert find_root_problem(str(tmp_path)) is None


def test_file_suggests_its_folder_or_a_command(cifar_folder):
    (cifar_folder / "val.beton").touch()
    assert f"from one folder\n    use:   data={cifar_folder}" in explain_root_rejection(
        cifar_folder / "val.beton"
    )
    (cifar_folder.parent / "mine.beton").touch()
    assert "resnet-recipes convert SRC DST" in explain_root_rejection(
        cifar_folder.parent / "mine.beton"
    )
    for name in ("x.txt", "x.zip", "x.xlsx"):
        (cifar_folder / name).touch()
        message = explain_root_rejection(cifar_folder / name)
        assert "is neither a folder nor a table (.csv, .tsv, .jsonl)" in message
        assert f"use:   data={cifar_folder}" in message
    for name, hint in (("x.txt", "a table has the columns path and label"), ("x.zip", "unpack it")):
        (cifar_folder.parent / name).touch()
        assert hint in explain_root_rejection(cifar_folder.parent / name)


@pytest.mark.parametrize("names", ["Train Val", "training_set test_set", "train valid"])
def test_nested_splits_of_any_name_are_found(tmp_path, names):
    for name in names.split():
        (tmp_path / "flowers" / "TV" / name / "rose").mkdir(parents=True)
        (tmp_path / "test" / "rose").mkdir(parents=True, exist_ok=True)
    assert f"a folder in it does\n    use:   data={tmp_path}/flowers/TV" in explain_root_rejection(
        tmp_path
    )


def test_class_called_train_suggests_a_link(tmp_path, monkeypatch):
    for name in ("bus", "train"):
        (tmp_path / "all" / name).mkdir(parents=True)
        for number in range(2):
            (tmp_path / "all" / name / f"{number}.jpg").touch()
    message = explain_root_rejection(tmp_path / "all")
    assert "all/train contains images without class folders" in message
    monkeypatch.chdir(tmp_path)
    subprocess.run(message.partition("if train is a class: ")[2], shell=True, check=True)
    config = DataConfig(root=str(tmp_path / "set"), val_share=0.5)
    assert data.survey_images(config).classes == ("bus", "train")


@pytest.mark.parametrize("place", ["images/train labels/train", "train/images train/labels"])
def test_detection_dataset_is_rejected(tmp_path, place):
    for folder in place.split():
        (tmp_path / folder).mkdir(parents=True)
    assert "has bounding boxes" in explain_root_rejection(tmp_path)


@pytest.mark.parametrize("neighbor", ["train.csv", "train/cat"])
def test_images_and_labels_folders_alone_are_not_detection(tmp_path, neighbor):
    for name in ("images", "labels"):
        (tmp_path / name).mkdir()
    (tmp_path / neighbor).mkdir(parents=True)
    assert find_root_problem(str(tmp_path)) is None


def test_impossible_paths_are_rejected_with_message(cifar_folder):
    (cifar_folder / "loop").symlink_to("loop")
    assert "cannot be read: File name too long" in explain_root_rejection(
        cifar_folder / ("x" * 300)
    )
    assert "cannot be read: Too many levels of symbolic links" in explain_root_rejection(
        cifar_folder / "loop"
    )


@pytest.mark.parametrize("locked", ["", "train", "train/cat"])
def test_unlistable_folder_suggests_a_command(cifar_folder, monkeypatch, locked):
    forbid_reading(cifar_folder / locked, monkeypatch)
    assert f"{cifar_folder / locked} cannot be read: Permission denied" in explain_root_rejection(
        cifar_folder
    )
    assert f"ls -ld {cifar_folder / locked}" in explain_root_rejection(cifar_folder)


def forbid_reading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder unreadable, even if the tests run as root."""
    for name in ("listdir", "scandir"):
        real = getattr(os, name)

        def fail(path, real=real):
            if Path(path) == folder:
                raise PermissionError(13, "Permission denied", str(path))
            return real(path)

        monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize(
    "address",
    [
        "https://",
        "https://me:secret@host/set",
        "https://me:sec/ret@host/set",
        "https://host/set?X-Amz-Signature=1",
        "s3://bucket/set#1",
        "https://[::1/set",
        "https://host/a\nb",
    ],
)
def test_address_with_secrets_or_ambiguity_is_rejected(address):
    (problem,) = find_address_problems(address)
    assert (problem.key, problem.value) == ("root", address)
    assert "ret@" not in str(problem)
    assert "Signature=1" not in str(problem)
    assert not [*find_address_problems("s3://bucket/a/b"), *find_address_problems("/data/a?b")]
