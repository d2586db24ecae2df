"""Everything wrong with a folder is reported before anything starts, with the known fixes."""

import os
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.commands import verbs
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.files.images import Files
from resnet_recipes.data.files.listing import Listing


@pytest.fixture
def root(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the images, to be spoilt."""
    shutil.copytree(folder, tmp_path / "images")
    return tmp_path / "images"


def measured(root: Path) -> data.DataFacts:
    """Return the facts as `backend=torchvision` finds them."""
    return data.measure(DataConfig(backend="torchvision", root=str(root)))


def refusal(root: Path) -> str:
    """Return the message of the refusal."""
    with pytest.raises(NotReadyError) as caught:
        measured(root)
    return str(caught.value)


def test_a_good_folder_is_counted(folder):
    facts = measured(folder)
    assert (facts.backend, facts.train_examples, facts.eval_examples, facts.classes) == (
        "torchvision",
        37,
        11,
        ("ant", "bee", "cat"),
    )


def test_auto_without_betons_says_that_files_are_decoded(folder):
    facts = data.measure(DataConfig(root=str(folder)))
    assert facts.backend == "torchvision"
    assert "no train.beton" in facts.notes[0]


def test_a_missing_and_an_empty_root_are_named(tmp_path):
    assert "does not exist" in refusal(tmp_path / "nowhere")
    assert "has no images" in refusal(tmp_path)
    (tmp_path / "val" / "ant").mkdir(parents=True)
    assert "has no training images" in refusal(tmp_path)


def test_the_line_that_a_flat_validation_folder_is_given_works_when_typed(
    folder, tmp_path, monkeypatch
):
    root = tmp_path / "two words"
    shutil.copytree(folder, root)
    classes = {path.stem: path.parent.name for path in (root / "val").glob("*/*")}
    for path in list((root / "val").glob("*/*")):
        path.rename(root / "val" / path.name)
    for name in ("ant", "bee", "cat"):
        (root / "val" / name).rmdir()
    with pytest.raises(NotReadyError) as caught:
        measured(root)
    monkeypatch.chdir(tmp_path)
    Path("LOC_val_solution.csv").write_text(
        "".join(f"{stem},{name}\n" for stem, name in classes.items())
    )
    _, _, *typed = shlex.split(caught.value.problems[0].fix)
    assert verbs.run(["doctor", *typed]) == 0
    assert measured(tmp_path / "two words-by-class").eval_examples == 11


def test_different_classes_and_empty_ones_are_reported_together(root):
    shutil.move(root / "val" / "bee", root / "val" / "wasp")
    shutil.rmtree(root / "train" / "cat")
    (root / "train" / "cat").mkdir()
    message = refusal(root)
    assert "val: lacks bee" in message
    assert "train: lacks wasp" in message
    assert "train: has no images in cat" in message


def test_hidden_folders_and_other_files_are_neither_classes_nor_images(root):
    (root / "train" / ".ipynb_checkpoints").mkdir()
    (root / "train" / "ant" / ".hidden.jpg").touch()
    (root / "train" / "ant" / "notes.txt").touch()
    (root / "train" / "README.md").touch()
    assert measured(root).classes == ("ant", "bee", "cat")
    assert measured(root).train_examples == 37


def test_debris_of_archivers_and_file_servers_is_left_out(root):
    for place in (
        root / "train" / "__MACOSX" / "ant",
        root / "train" / "ant" / "@eaDir",
        root / "val" / "lost+found",
    ):
        place.mkdir(parents=True)
        (place / "thumbnail.jpg").touch()
    assert measured(root).classes == ("ant", "bee", "cat")
    assert measured(root).train_examples == 37


@pytest.mark.skipif(
    find_spec("pillow_heif") is not None, reason="pillow-heif is installed: .heic is known"
)
def test_files_of_unknown_kinds_are_counted_and_named(root):
    for number in range(3):
        (root / "train" / "ant" / f"{number}.HEIC").touch()
    (root / "val" / "bee" / "README").touch()
    said = (
        "ignored because of their suffixes: 3 .heic, 1 without a suffix; "
        "pip install pillow-heif  makes .heic readable"
    )
    assert measured(root).notes[0] == said
    for path in (root / "train" / "ant").glob("*.jpg"):
        path.unlink()
    assert "has no images in ant" in refusal(root)
    assert "(not read: 3 .heic, 1 without a suffix" in refusal(root)


def test_class_names_that_no_file_could_hold_are_refused(root):
    for split in ("train", "val"):
        (root / split / "ant").rename(root / split / os.fsdecode(b"ant\xff"))
    assert r"not printable UTF-8 text: 'ant\udcff'" in refusal(root)


def test_a_loop_of_links_ends_and_linked_classes_and_files_count(root):
    (root / "train" / "ant" / "loop").symlink_to(root / "train")
    shutil.move(root / "train" / "bee", root / "elsewhere")
    (root / "train" / "bee").symlink_to(root / "elsewhere")
    (root / "train" / "cat" / "linked.jpg").symlink_to(next((root / "elsewhere").iterdir()))
    assert measured(root).train_examples == 38


def test_files_are_sorted_by_class_and_name_whatever_their_names(root):
    (root / "train" / "bee" / "a b\n\u00e9.jpg").touch()
    files = Files(Listing.of(root / "train"))
    expected = [
        str(path)
        for name in ("ant", "bee", "cat")
        for path in sorted((root / "train" / name).iterdir())
    ]
    assert [files.path(index) for index in range(len(files))] == expected
    assert [Path(path).parent.name for path in expected] == [
        ("ant", "bee", "cat")[label] for label in files.labels
    ]


def test_a_class_of_one_image_cannot_be_divided(root):
    shutil.rmtree(root / "val")
    for path in sorted((root / "train" / "bee").iterdir())[1:]:
        path.unlink()
    with pytest.raises(NotReadyError, match="needs two images of each class; bee has one"):
        data.measure(DataConfig(backend="torchvision", root=str(root), val_share=0.2))
