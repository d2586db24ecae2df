"""Any folder of images can be trained on.

Without val/, nested, under Hugging Face's names, or listed in a table.
"""

import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.base import DataConfig, Share
from resnet_recipes.data.beton.file import open_beton
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.files.layout import listing_of, set_aside
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.doctor.data import check_data


@pytest.fixture
def flowers(folder: Path, tmp_path: Path) -> Path:
    """Return 37 images in three class folders, without splits."""
    shutil.copytree(folder / "train", tmp_path / "flowers")
    return tmp_path / "flowers"


def config_of(root: Path, **changes: object) -> DataConfig:
    return DataConfig("torchvision", str(root), workers=0, **changes)


def refusal(root: Path, **changes: object) -> str:
    """Return why `root` is refused."""
    with pytest.raises(NotReadyError) as caught:
        data.measure(config_of(root, **changes))
    return str(caught.value)


def both(config: DataConfig) -> tuple[set[str], set[str]]:
    """Return the names of the training and of the validation images."""
    train, val = (set(listing_of(config, split).names) for split in ("train", "val"))
    return train, val


def test_a_folder_without_val_is_refused_with_the_setting_that_helps(flowers):
    assert "has no validation images\n    data.val_share=0.1" in refusal(flowers)
    only_train = flowers.parent / "set"
    only_train.mkdir()
    flowers.rename(only_train / "train")
    assert "has no validation images\n    data.val_share=0.1" in refusal(only_train)
    assert data.measure(config_of(only_train, val_share=0.1)).eval_examples == 3


def test_a_share_of_each_class_is_set_aside_and_reported(flowers):
    config = config_of(flowers, val_share=0.25)
    train, val = both(config)
    assert train | val == set(Listing.of(flowers).names)
    assert not train & val
    assert Counter(name.partition("/")[0] for name in val) == {"ant": 3, "bee": 3, "cat": 3}
    facts = data.measure(config)
    assert (facts.train_examples, facts.eval_examples, facts.classes) == (
        28,
        9,
        ("ant", "bee", "cat"),
    )
    assert (
        "9 of 37 images are set aside for validation, a share of 0.25 of each class"
        in facts.notes[0]
    )
    loader = data.open_eval(config, facts, Share(0, 1, 4, 4, 0))
    assert Counter(
        torch_label for raw in loader.batches() for torch_label in raw.labels.tolist()
    ) == {0: 3, 1: 3, 2: 3}


def test_which_images_are_set_aside_is_a_function_of_the_seed_and_hardly_changes_with_the_folder(
    flowers,
):
    first, again, other = (
        both(config_of(flowers, val_share=0.3, val_seed=seed))[1] for seed in (0, 0, 1)
    )
    assert first == again != other
    shutil.copy(flowers / "ant" / "000.jpg", flowers / "ant" / "new.jpg")
    assert len(both(config_of(flowers, val_share=0.3))[1] - first) <= 1


def test_every_class_keeps_an_image_on_both_sides_or_is_named(flowers):
    for name in ("ant", "bee"):
        for path in sorted((flowers / name).iterdir())[2:]:
            path.unlink()
    for share in (0.01, 0.99):
        config = config_of(flowers, val_share=share)
        assert min(listing_of(config, "val").counts) >= 1 <= min(listing_of(config, "train").counts)
    next((flowers / "bee").iterdir()).unlink()
    assert "needs two images of each class; bee has one" in refusal(flowers, val_share=0.1)


def test_a_share_of_a_set_with_val_is_refused(folder):
    assert "is for data without validation images; val has some" in refusal(folder, val_share=0.1)


def test_one_class_and_an_empty_class_are_explained(flowers):
    for path in (flowers / "bee").iterdir():
        path.unlink()
    assert "has no images in bee" in refusal(flowers, val_share=0.1)
    inner = flowers.parent / "set"
    (inner / "train").mkdir(parents=True)
    (flowers / "bee").rmdir()
    flowers.rename(inner / "train" / "insects")
    said = refusal(inner, val_share=0.1)
    assert "has one class, insects; at least 2 are needed\n    data.nested_classes=true" in said
    assert data.measure(config_of(inner, val_share=0.1, nested_classes=True)).classes == (
        "insects/ant",
        "insects/cat",
    )


def test_folders_without_any_image_are_named_instead_of_called_classes(flowers):
    for path in flowers.glob("*/*"):
        path.rename(path.with_suffix(".txt"))
    said = refusal(flowers, val_share=0.1, nested_classes=True)
    assert f"{flowers}: has no images" in said
    assert "(not read: " in said


def test_folders_within_class_folders_are_reported_and_become_classes_on_request(folder, tmp_path):
    for split in ("train", "val"):
        shutil.copytree(folder / split / "ant", tmp_path / split / "insects" / "ant")
        shutil.copytree(folder / split / "bee", tmp_path / split / "insects" / "bee")
        shutil.copytree(folder / split / "cat", tmp_path / split / "mammals")
    flat = data.measure(config_of(tmp_path))
    assert flat.classes == ("insects", "mammals")
    assert "data.nested_classes=true makes each of these a class" in "".join(flat.notes)
    nested = data.measure(config_of(tmp_path, nested_classes=True))
    assert nested.classes == ("insects/ant", "insects/bee", "mammals")
    assert nested.train_examples == flat.train_examples
    assert "nested_classes" not in "".join(nested.notes)


@pytest.mark.parametrize(
    ("train", "val"), [("train", "validation"), ("Training", "test"), ("train", "Val")]
)
def test_the_names_of_splits_elsewhere_are_read_and_reported(folder, tmp_path, train, val):
    (tmp_path / train).symlink_to(folder / "train")
    (tmp_path / val).symlink_to(folder / "val")
    facts = data.measure(config_of(tmp_path))
    assert (facts.train_examples, facts.eval_examples) == (37, 11)
    assert facts.notes[0] == f"validation images come from {val}"


def test_validation_is_preferred_to_test(folder, tmp_path):
    for name, source in (("train", "train"), ("validation", "val"), ("test", "train")):
        (tmp_path / name).symlink_to(folder / source)
    assert data.measure(config_of(tmp_path)).eval_examples == 11


@pytest.fixture
def table(folder: Path, tmp_path: Path) -> Path:
    """Return a table of all images of `folder`, which lie next to it without class folders.

    No name contains `val`.
    """
    lines = ["path,label,split"]
    (tmp_path / "pictures").mkdir()
    for path in sorted(folder.glob("*/*/*.jpg")):
        split, label = path.parts[-3:-1]
        name = f"pictures/{split}{path.name}"
        shutil.copy(path, tmp_path / name)
        lines.append(f"{name},{label},{'test' if split == 'val' else split}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "labels.csv"


def test_a_table_gives_the_images_and_labels_of_the_folders(folder, table):
    facts = data.measure(config_of(table))
    assert (facts.train_examples, facts.eval_examples, facts.classes) == (
        37,
        11,
        ("ant", "bee", "cat"),
    )
    assert facts.notes[:2] == ("validation images come from test", f"labels come from {table}")
    share = Share(0, 1, 11, 11, 0)
    mine, theirs = (
        next(data.open_eval(config_of(root), data.measure(config_of(root)), share).batches())
        for root in (table, folder)
    )
    assert np.array_equal(mine.pixels, theirs.pixels)
    assert np.array_equal(mine.labels, theirs.labels)


def test_a_table_without_splits_is_shared_out(table):
    table.write_text(
        "".join(line.rpartition(",")[0] + "\n" for line in table.read_text().splitlines())
    )
    assert "has no validation images" in refusal(table)
    assert data.measure(config_of(table, val_share=0.25)).eval_examples == 12


def test_hugging_faces_metadata_gives_the_labels(folder, tmp_path):
    for split, name in (("train", "train"), ("val", "test")):
        (tmp_path / name).mkdir()
        lines = ["file_name,label"]
        for path in sorted((folder / split).glob("*/*.jpg")):
            shutil.copy(path, tmp_path / name / path.name)
            lines.append(f"{path.name},{path.parent.name}")
        (tmp_path / name / "metadata.csv").write_text("\n".join(lines))
    facts = data.measure(config_of(tmp_path))
    assert (facts.train_examples, facts.eval_examples, facts.classes) == (
        37,
        11,
        ("ant", "bee", "cat"),
    )
    rows = [
        f'{{"file_name": "{name}/{line.split(",")[0]}", "label": "{line.split(",")[1]}"}}\n'
        for name in ("train", "test")
        for line in (tmp_path / name / "metadata.csv").read_text().splitlines()[1:]
    ]
    (tmp_path / "metadata.jsonl").write_text("".join(rows))
    assert "more than one place" in refusal(tmp_path)
    for name in ("train", "test"):
        (tmp_path / name / "metadata.csv").unlink()
    whole = data.measure(config_of(tmp_path))
    assert (whole.train_examples, whole.eval_examples, whole.classes) == (
        37,
        11,
        ("ant", "bee", "cat"),
    )


def test_metadata_without_labels_leaves_them_to_the_folders(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "set")
    (tmp_path / "set" / "train" / "metadata.csv").write_text("file_name,text\nant/000.jpg,an ant\n")
    assert data.measure(config_of(tmp_path / "set")).train_examples == 37


def test_what_is_set_aside_is_part_of_what_a_resumed_run_checks(flowers):
    config = config_of(flowers, val_share=0.2)
    facts = data.measure(config)
    data.open_train(config, facts, Share(0, 1, 4, 4, 0)).close()
    with pytest.raises(NotReadyError, match="has changed since the run began"):
        data.open_train(replace(config, val_seed=1), facts, Share(0, 1, 4, 4, 0))


def test_the_doctor_looks_at_every_image_of_every_layout(flowers, table):
    next((flowers / "cat").iterdir()).write_bytes(b"no image")
    for root, count in ((flowers, 37), (table, 48)):
        found = check_data(root)
        assert f"of {count} images were decoded" in found[-1].what
    levels = {finding.what: finding.level for finding in check_data(flowers)}
    assert levels[f"{flowers} has no validation images"] == "warn"


def test_a_set_of_a_million_images_is_shared_out_in_seconds_not_minutes():
    names = [os.fsencode(f"c/{number}") for number in range(1000)]
    whole = Listing(
        "",
        ("c",),
        np.frombuffer(b"".join(names), np.uint8),
        np.cumsum([len(name) for name in names]),
        np.zeros(1000, np.int64),
        np.array([1000]),
    )
    assert set_aside(whole, 0.1, 0).sum() == 100


@pytest.fixture
def listed(folder: Path, tmp_path: Path) -> Path:
    """Return the images in class folders, with tables beside them that swap ant and bee."""
    shutil.copytree(folder, tmp_path / "listed")
    other = {"ant": "bee", "bee": "ant", "cat": "cat"}
    for split in ("train", "val"):
        lines = ["path,label"]
        for path in sorted((tmp_path / "listed" / split).glob("*/*.jpg")):
            lines.append(f"{split}/{path.parent.name}/{path.name},{other[path.parent.name]}")
        (tmp_path / "listed" / f"{split}.csv").write_text("\n".join(lines))
    return tmp_path / "listed"


def labelled(root: Path, **changes: object) -> dict[str, str]:
    """Return the label of each validation image, by its name."""
    found = listing_of(config_of(root, **changes), "val")
    return {
        Path(path).name: found.classes[at]
        for path, at in zip(found.paths, found.labels, strict=True)
    }


def test_a_table_beside_folders_gives_the_labels_and_the_plan_says_so(listed, folder):
    theirs = labelled(folder)
    swapped = {"ant": "bee", "bee": "ant", "cat": "cat"}
    assert labelled(listed) == {name: swapped[label] for name, label in theirs.items()}
    notes = data.measure(config_of(listed)).notes
    assert f"labels come from {listed}/train.csv and {listed}/val.csv" in notes
    convert(listed, listed / "made", ConvertOptions(workers=1), lambda *_: None)
    assert (open_beton(listed / "made" / "val.beton").labels == 0).sum() == sum(
        label == "bee" for label in theirs.values()
    )
    (listed / "val.csv").rename(listed / "val.CSV")
    assert labelled(listed) != theirs
    (listed / "val.CSV").unlink()
    assert labelled(listed) == theirs
    notes = data.measure(config_of(listed)).notes
    said = f"labels come from {listed}/train.csv and the names of folders in {listed}/val"
    assert said in notes


def test_flat_images_are_read_through_the_table_beside_them(listed):
    for split in ("train", "val"):
        for path in (listed / split).glob("*/*.jpg"):
            path.rename(listed / split / path.name)
        for path in (listed / split).glob("*/"):
            path.rmdir()
        place = listed / f"{split}.csv"
        place.write_text(
            place.read_text().replace("ant/", "").replace("bee/", "").replace("cat/", "")
        )
    assert data.measure(config_of(listed)).train_examples == 37
    (listed / "train.csv").rename(listed / "labels.csv")
    said = refusal(listed)
    assert "train: contains images without class folders, and a table that is not read" in said
    assert f"data={listed}/labels.csv" in said


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.tsv", "path\tlabel\na.jpg\tx\n"),
        ("Train.csv", "path,label\na.jpg,x\n"),
        ("train/metadata.csv", "file_name,label\na.jpg,x\n"),
        ("metadata.jsonl", '{"file_name": "a.jpg", "label": "x"}\n'),
    ],
)
def test_two_tables_for_the_same_images_are_refused(listed, name, content):
    (listed / name).write_text(content)
    said = refusal(listed)
    assert "has more than one place that labels could come from" in said
    assert name in said
    assert "train.csv" in said


def test_a_table_under_another_name_of_the_split_is_refused_unless_it_has_a_folder(listed):
    (listed / "val.csv").rename(listed / "validation.csv")
    assert "could come from: val and validation.csv" in refusal(listed)
    (listed / "validation").mkdir()
    assert labelled(listed)["000.jpg"] == "ant"


def test_tables_that_do_not_give_the_labels_are_named(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "set")
    (tmp_path / "set" / "train.csv").write_text("id,diagnosis,age\n1,2,3\n")
    (tmp_path / "set" / "labels.csv").write_text("path,label\na.jpg,x\n")
    notes = "\n".join(data.measure(config_of(tmp_path / "set")).notes)
    assert f"not from {tmp_path}/set/labels.csv, {tmp_path}/set/train.csv" in notes


def test_a_table_of_one_split_with_rows_of_the_other_is_refused(listed):
    (listed / "train.csv").write_text("path,label,split\ntrain/ant/000.jpg,x,val\n")
    assert "has rows whose split is not that of the table's name: val" in refusal(listed)


def test_an_image_that_tables_list_for_both_splits_is_refused(listed):
    (listed / "val.csv").write_text((listed / "train.csv").read_text())
    assert "has 37 images for training that are for validation too" in refusal(listed)
