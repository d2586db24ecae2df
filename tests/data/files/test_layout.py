"""Any folder of images can be trained on.

It may have no val/, nested folders, Hugging Face names, or a table.
"""

import shutil
from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes import data
from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.text import do_nothing
from resnet_recipes.data.base import DataConfig
from resnet_recipes.data.beton import open_beton
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.files.layout import list_split
from resnet_recipes.data.files.listing import Listing
from resnet_recipes.doctor.data import check_data
from tests.data.loaders import (
    CLASSES,
    ONE_RANK,
    count_images,
    explain_rejected_folder,
    make_small_config,
)
from tests.shared.tables import parse_rows

SWAPPED = {"ant": "bee", "bee": "ant", "cat": "cat"}


@pytest.fixture
def flowers(image_folder: Path, tmp_path: Path) -> Path:
    """Return 37 images in three class folders, without splits."""
    return Path(shutil.copytree(image_folder / "train", tmp_path / "flowers"))


def list_validation(config: DataConfig) -> set[str]:
    return {*list_split(config, "val").names}


def read_labels(root: Path) -> dict[str, str]:
    val = list_split(make_small_config(root), "val")
    labels = [val.classes[label] for label in val.labels]
    return dict(zip((Path(path).name for path in val.paths), labels, strict=True))


def format_layout_notes(root: Path, **changes) -> str:
    facts = data.survey_images(make_small_config(root, **changes))
    notes = (f"{note.text}\n{note.fix}" for note in facts.notes)
    return "\n".join((*notes, *facts.details))


def test_folder_without_val_suggests_a_setting(flowers):
    assert "has no validation images\n    use:   data.val_share=0.1" in explain_rejected_folder(
        flowers
    )
    root = flowers.parent / "set"
    root.mkdir()
    flowers.rename(root / "train")
    assert "has no validation images\n    use:   data.val_share=0.1" in explain_rejected_folder(
        root
    )
    assert count_images(root, val_share=0.1) == (34, 3, CLASSES)
    (root / "val").symlink_to(root / "train")
    message = explain_rejected_folder(root, val_share=0.1)
    assert "is for data without validation images, and " in message
    assert "/val has some" in message


def test_validation_fraction_is_taken_from_each_class(flowers):
    config = make_small_config(flowers, val_share=0.25)
    train = {*list_split(config, "train").names}
    val = list_validation(config)
    assert train | val == {*Listing.of(flowers).names}
    assert not train & val
    assert Counter(name[:3] for name in val) == dict.fromkeys(CLASSES, 3)
    assert count_images(flowers, val_share=0.25) == (28, 9, CLASSES)
    message = "9 images are set aside for validation, a fraction of 0.25 of each class"
    assert message in format_layout_notes(flowers, val_share=0.25)
    with closing(data.open_eval(config, data.survey_images(config), ONE_RANK)) as loader:
        labels = np.concatenate([batch.labels.numpy().copy() for batch in loader.batches()])
    assert np.bincount(labels).tolist() == [3, 3, 3]


def test_validation_images_depend_on_val_seed_and_names(flowers):
    first, again, other = (
        list_validation(make_small_config(flowers, val_share=0.3, val_seed=seed))
        for seed in (0, 0, 1)
    )
    assert first == again != other
    shutil.copy(flowers / "ant" / "000.jpg", flowers / "ant" / "new.jpg")
    assert len(list_validation(make_small_config(flowers, val_share=0.3)) - first) <= 1


@pytest.mark.parametrize("parts", [2, 3, 5, 40])
def test_folds_put_each_image_in_one_validation(flowers, parts):
    configs = [
        make_small_config(flowers, fold=f"{part}/{parts}", val_seed=3)
        for part in range(1, parts + 1)
    ]
    names = [list_validation(config) for config in configs]
    assert sorted(name for part in names for name in part) == sorted(Listing.of(flowers).names)
    counts = [Counter(name[:3] for name in part) for part in names]
    for name in CLASSES:
        of_class = [count[name] for count in counts]
        assert max(of_class) - min(of_class) <= 1
    assert max(map(len, names)) - min(map(len, names)) <= 1
    for config, part in zip(configs, names, strict=True):
        assert list_training(config) == {*Listing.of(flowers).names} - part
    again = list_validation(replace(configs[0], seed=9, share=0.5))
    assert again == names[0] != list_validation(replace(configs[0], val_seed=4))


def test_folds_are_described_and_divide_training_images(flowers, copied_images):
    message = "13 images are set aside for validation, part 1/3 of each class, the same with every"
    assert message in format_layout_notes(flowers, fold="1/3")
    config = make_small_config(copied_images, fold="1/3")
    assert count_images(copied_images, fold="1/3") == (24, 13, CLASSES)
    assert list_validation(config) | list_training(config) == {
        *Listing.of(copied_images / "train").names
    }
    assert "val is not used: data.fold divides the training images" in format_layout_notes(
        copied_images, fold="1/3"
    )
    next((flowers / "bee").iterdir()).rename(flowers / "ant" / "moved.jpg")
    for path in sorted((flowers / "bee").iterdir())[1:]:
        path.unlink()
    assert "needs at least two images per class; these have one: bee" in explain_rejected_folder(
        flowers, fold="1/3"
    )


def test_fold_needs_two_images_before_share_is_applied(flowers):
    for path in sorted((flowers / "cat").iterdir())[2:]:
        path.unlink()
    sizes = [count_images(flowers, fold=f"{part}/5", share=0.1)[1] for part in range(1, 6)]
    assert sum(sizes) == len(Listing.of(flowers))
    vals = [list_split(make_small_config(flowers, fold=f"{part}/5"), "val") for part in range(1, 6)]
    assert sorted(int(val.counts[2]) for val in vals) == [0, 0, 0, 1, 1]
    next((flowers / "cat").iterdir()).unlink()
    for part in range(1, 6):
        message = explain_rejected_folder(flowers, fold=f"{part}/5", share=0.1)
        assert "needs at least two images per class; these have one: cat" in message


@pytest.mark.parametrize("fold", ["0/5", "6/5", "1/1", "5", "a/b", "1/5/2", "-1/5"])
def test_invalid_fold_is_rejected(fold, flowers):
    (problem,) = make_small_config(flowers, fold=fold).problems()
    assert (problem.key, problem.value) == ("fold", fold)


def test_fold_and_fraction_exclude_each_other(flowers):
    (problem,) = make_small_config(flowers, fold="1/5", val_share=0.1).problems()
    assert problem.key == "val_share"


def list_training(config: DataConfig) -> set[str]:
    return {*list_split(config, "train").names}


def test_data_share_is_nested_and_taken_per_class(copied_images):
    counts = Counter(name[:3] for name in list_training(make_small_config(copied_images)))
    chosen = [
        list_training(make_small_config(copied_images, share=share))
        for share in (0.01, 0.1, 0.3, 0.5, 1.0)
    ]
    for share, names in zip((0.01, 0.1, 0.3, 0.5, 1.0), chosen, strict=True):
        expected = {name: max(1, int(share * count + 0.5)) for name, count in counts.items()}
        assert Counter(name[:3] for name in names) == expected
    for fewer, more in pairwise(chosen):
        assert fewer <= more
    facts = data.survey_images(make_small_config(copied_images, share=0.3))
    assert facts.train_examples == len(chosen[2])
    assert facts.eval_examples == 11
    assert "12 images are trained on, a fraction of 0.3" in format_layout_notes(
        copied_images, share=0.3
    )


def test_data_share_depends_on_val_seed(copied_images):
    first, again, other = (
        list_training(make_small_config(copied_images, share=0.4, val_seed=seed, seed=run))
        for seed, run in ((0, 1), (0, 2), (1, 1))
    )
    assert first == again != other


def test_data_share_keeps_validation_images(flowers):
    whole, part = (make_small_config(flowers, val_share=0.25, share=share) for share in (1.0, 0.2))
    assert list_validation(part) == list_validation(whole)
    assert list_training(part) < list_training(whole)


def test_split_leaves_each_class_in_both_splits(flowers):
    for name in ("ant", "bee"):
        for path in sorted((flowers / name).iterdir())[2:]:
            path.unlink()
    for share in (0.01, 0.99):
        config = make_small_config(flowers, val_share=share)
        assert min(list_split(config, "val").counts) >= 1 <= min(list_split(config, "train").counts)
    next((flowers / "bee").iterdir()).unlink()
    clause = "needs at least two images per class; these have one: bee"
    assert f"data.val_share=0.1 {clause}" in explain_rejected_folder(flowers, val_share=0.1)
    message = explain_rejected_folder(flowers)
    assert f"hint:  data.val_share=0.1 {clause}" in message
    assert "use:" not in message


def test_table_of_one_class_is_explained(flowers):
    images = [f"{path}" for path in flowers.glob("*/*")]
    table = flowers.parent / "labels.csv"
    table.write_text("path,label\n" + "".join(f"{path},roses\n" for path in images))
    message = explain_rejected_folder(table, val_share=0.1)
    assert message.endswith("needed\n    hint:  every row of the table has this label")


def test_single_and_empty_classes_are_explained(flowers):
    for path in (flowers / "bee").iterdir():
        path.unlink()
    message = explain_rejected_folder(flowers, val_share=0.1)
    assert "has no images in bee" in message
    assert "these have one" not in message
    root = flowers.parent / "set"
    (root / "train").mkdir(parents=True)
    (flowers / "bee").rmdir()
    flowers.rename(root / "train" / "insects")
    message = explain_rejected_folder(root, val_share=0.1)
    fix = f"use:   data={root}/train/insects\n    hint:  contains several class folders"
    assert f"has one class, insects; at least 2 are needed\n    {fix}" in message
    assert count_images(root / "train" / "insects", val_share=0.1)[2] == (
        "ant",
        "cat",
    )
    nested = {"val_share": 0.1, "nested_classes": True}
    assert count_images(root, **nested)[2] == ("insects/ant", "insects/cat")
    for path in root.glob("*/*/*/*"):
        path.rename(path.with_suffix(".txt"))
    message = explain_rejected_folder(root, **nested)  # empty folders are not classes
    assert f"{root}/train has no images" in message
    assert "(not read: " in message


def test_only_inner_folder_with_classes_is_suggested(flowers):
    for path in sorted(flowers.glob("*/*")):
        if path.name != min(path.parent.iterdir()).name:
            path.unlink()
    message = explain_rejected_folder(flowers.parent)
    assert f"use:   data={flowers}" in message
    assert "two images" not in message
    (flowers.parent / "set/cats/val").mkdir(parents=True)
    flowers.rename(flowers.parent / "set/cats/val/tigers")
    message = explain_rejected_folder(flowers.parent / "set", val_share=0.1)
    assert "has one class, cats" in message
    assert "use:" not in message


def test_nested_folders_become_classes_on_request(image_folder, tmp_path):
    for split in ("train", "val"):
        for name, place in (("ant", "insects/ant"), ("bee", "insects/bee"), ("cat", "mammals")):
            shutil.copytree(image_folder / split / name, tmp_path / split / place)
    assert count_images(tmp_path) == (37, 11, ("insects", "mammals"))
    assert "data.nested_classes=true" in format_layout_notes(tmp_path)
    classes = ("insects/ant", "insects/bee", "mammals")
    assert count_images(tmp_path, nested_classes=True) == (37, 11, classes)
    assert "nested_classes" not in format_layout_notes(tmp_path, nested_classes=True)


@pytest.mark.parametrize(
    ("train", "val", "more"),
    parse_rows(
        """
train | validation | test
Training | test |
train | Val |
training_set | test_set | single_prediction
trainset | valset | testset
seg_train | seg_test | seg_pred
train_images | val_images | test_images
TrainImages | TestImages |
Train Data | Validation Data |
train2017 | val2017 |
"""
    ),
)
def test_foreign_split_names_are_read_and_reported(image_folder, tmp_path, train, val, more):
    (tmp_path / train).symlink_to(image_folder / "train")
    (tmp_path / val).symlink_to(image_folder / "val")
    if more:
        (tmp_path / more).symlink_to(image_folder / "train")
    assert count_images(tmp_path) == (37, 11, CLASSES)
    assert f"validation images come from {val}" in format_layout_notes(tmp_path).splitlines()


def test_nested_split_folders_count_once(image_folder, tmp_path):
    for split, name in (("train", "training_set"), ("val", "test_set")):
        shutil.copytree(image_folder / split, tmp_path / name / name)
    assert count_images(tmp_path) == (37, 11, CLASSES)


def test_self_linked_folder_is_not_a_nested_split(tmp_path):
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        (tmp_path / split / split).symlink_to(tmp_path / split)
    assert "has no images" in explain_rejected_folder(tmp_path)


def test_split_folders_in_table_paths_divide_it(image_folder, tmp_path):
    lines = ["path,label"]
    for split, name in (("train", "seg_train"), ("val", "seg_test")):
        for path in sorted(shutil.copytree(image_folder / split, tmp_path / name).glob("*/*")):
            lines.append(f"{path.relative_to(tmp_path)},{path.parent.name}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    assert count_images(tmp_path / "labels.csv") == (37, 11, CLASSES)


@pytest.fixture
def image_table(image_folder: Path, tmp_path: Path) -> Path:
    """Return a table of all images of `image_folder`, which are next to it without class folders.

    No name contains `val`.
    """
    lines = ["path,label,split"]
    (tmp_path / "pictures").mkdir()
    for path in sorted(image_folder.glob("*/*/*.jpg")):
        split, label = path.parts[-3:-1]
        name = f"pictures/{split}{path.name}"
        shutil.copy(path, tmp_path / name)
        lines.append(f"{name},{label},{'test' if split == 'val' else split}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "labels.csv"


def test_table_gives_images_and_labels_of_folders(image_folder, image_table):
    assert count_images(image_table) == (37, 11, CLASSES)
    assert "validation images come from test" in format_layout_notes(image_table).splitlines()
    share = replace(ONE_RANK, eval_size=11)
    mine, theirs = (
        next(
            data.open_eval(
                make_small_config(root), data.survey_images(make_small_config(root)), share
            ).batches()
        )
        for root in (image_table, image_folder)
    )
    assert np.array_equal(mine.pixels, theirs.pixels)
    assert np.array_equal(mine.labels, theirs.labels)


def test_table_without_splits_is_split_randomly(image_table):
    lines = [line.rpartition(",")[0] for line in image_table.read_text().splitlines()]
    image_table.write_text("\n".join(lines))
    assert "has no validation images" in explain_rejected_folder(image_table)
    assert count_images(image_table, val_share=0.25)[1] == 12


def test_hugging_face_metadata_gives_labels(image_folder, tmp_path):
    rows = []
    for split, name in (("train", "train"), ("val", "test")):
        (tmp_path / name).mkdir()
        lines = ["file_name,label"]
        for path in sorted((image_folder / split).glob("*/*.jpg")):
            shutil.copy(path, tmp_path / name / path.name)
            label = path.parent.name
            lines.append(f"{path.name},{label}")
            rows.append(f'{{"file_name": "{name}/{path.name}", "label": "{label}"}}\n')
        (tmp_path / name / "metadata.csv").write_text("\n".join(lines))
    assert count_images(tmp_path) == (37, 11, CLASSES)
    (tmp_path / "metadata.jsonl").write_text("".join(rows))
    assert "several sources of labels" in explain_rejected_folder(tmp_path)
    for name in ("train", "test"):
        (tmp_path / name / "metadata.csv").unlink()
    assert count_images(tmp_path) == (37, 11, CLASSES)


def test_tables_without_labels_are_named(copied_images):
    (copied_images / "train" / "metadata.csv").write_text("file_name,text\nant/000.jpg,an ant\n")
    (copied_images / "train.csv").write_text("id,diagnosis,age\n1,2,3\n")
    (copied_images / "labels.csv").write_text("path,label\na.jpg,x\n")
    assert count_images(copied_images) == (37, 11, CLASSES)
    assert f"not from {copied_images}/labels.csv, {copied_images}/train.csv" in format_layout_notes(
        copied_images
    )


@pytest.mark.parametrize("changes", [{"share": 0.6}, {"val_seed": 1}])
def test_resume_rejects_another_selection_of_images(flowers, changes):
    config = make_small_config(flowers, val_share=0.2, share=0.5)
    facts = data.survey_images(config)
    data.open_train(config, facts, ONE_RANK).close()
    with pytest.raises(NotReadyError, match="has changed since the run started"):
        data.open_train(replace(config, **changes), facts, ONE_RANK)


def test_doctor_checks_every_image_of_every_layout(flowers, image_table):
    next((flowers / "cat").iterdir()).write_bytes(b"no image")
    for root, count in ((flowers, 37), (image_table, 48)):
        assert f"of {count} images were decoded" in check_data(root)[-1].what
    first = check_data(flowers)[0]
    assert first.what.startswith(f"{flowers} has no validation images; this check sets aside")
    assert (first.level, first.fix) == ("warn", "data.val_share=0.1")


@pytest.fixture
def images_with_tables(copied_images: Path) -> Path:
    """Return images in class folders, next to tables that swap ant and bee."""
    for split in ("train", "val"):
        lines = ["path,label"]
        for path in sorted((copied_images / split).glob("*/*.jpg")):
            lines.append(f"{path.relative_to(copied_images)},{SWAPPED[path.parent.name]}")
        (copied_images / f"{split}.csv").write_text("\n".join(lines))
    return copied_images


def test_table_next_to_folders_gives_labels_and_note(images_with_tables, image_folder):
    theirs = read_labels(image_folder)
    table = images_with_tables / "val.csv"
    assert read_labels(images_with_tables) == {
        name: SWAPPED[label] for name, label in theirs.items()
    }
    assert f"labels come from {images_with_tables}/train.csv and {table}" in str(
        data.survey_images(make_small_config(images_with_tables)).notes
    )
    convert(images_with_tables, images_with_tables / "made", ConvertOptions(workers=1), do_nothing)
    bees = sum(label == "bee" for label in theirs.values())
    assert (open_beton(images_with_tables / "made" / "val.beton").labels == 0).sum() == bees
    table = table.rename(images_with_tables / "val.CSV")
    assert read_labels(images_with_tables) != theirs
    table.unlink()
    assert read_labels(images_with_tables) == theirs
    train = f"labels come from {images_with_tables}/train.csv"
    message = f"{train} and the names of folders in {images_with_tables}/val"
    assert message in format_layout_notes(images_with_tables)


def test_flat_images_are_labeled_by_their_table(images_with_tables):
    for split in ("train", "val"):
        place = images_with_tables / f"{split}.csv"
        for path in (images_with_tables / split).glob("*/*.jpg"):
            path.rename(images_with_tables / split / path.name)
        for name in CLASSES:
            (images_with_tables / split / name).rmdir()
            place.write_text(place.read_text().replace(f"{name}/", ""))
    assert count_images(images_with_tables) == (37, 11, CLASSES)
    (images_with_tables / "train.csv").rename(images_with_tables / "labels.csv")
    message = explain_rejected_folder(images_with_tables)
    assert "train contains images without class folders, and a table that is not read" in message
    assert f"data={images_with_tables}/labels.csv" in message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.tsv", "path\tlabel\na.jpg\tx\n"),
        ("Train.csv", "path,label\na.jpg,x\n"),
        ("train/metadata.csv", "file_name,label\na.jpg,x\n"),
        ("metadata.jsonl", '{"file_name": "a.jpg", "label": "x"}\n'),
    ],
)
def test_two_tables_for_same_images_are_rejected(images_with_tables, name, content):
    (images_with_tables / name).write_text(content)
    message = explain_rejected_folder(images_with_tables)
    assert "has several sources of labels" in message
    assert name in message
    assert "train.csv" in message


def test_table_of_renamed_split_needs_its_folder(images_with_tables):
    (images_with_tables / "val.csv").rename(images_with_tables / "validation.csv")
    assert "sources of labels: val and validation.csv" in explain_rejected_folder(
        images_with_tables
    )
    (images_with_tables / "validation").mkdir()
    assert read_labels(images_with_tables)["000.jpg"] == "ant"


def test_rows_of_other_split_are_rejected(images_with_tables):
    table = images_with_tables / "train.csv"
    (images_with_tables / "val.csv").write_text(table.read_text())
    assert "lists 37 images for both training and validation" in explain_rejected_folder(
        images_with_tables
    )
    table.write_text("path,label,split\ntrain/ant/000.jpg,x,val\n")
    assert "has rows whose split is not the split in its file name: val" in explain_rejected_folder(
        images_with_tables
    )
