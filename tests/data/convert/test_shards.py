"""Shards of other programs give the same files as a folder with the same images."""

import io
import json
import os
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.base.text import do_nothing
from resnet_recipes.data.beton import open_beton
from resnet_recipes.data.convert import convert, forecast, shards
from resnet_recipes.data.convert.shards import find_shards
from tests.data.loaders import CLASSES, RAW, read_samples

TWO = ({"bytes": b"x"}, {"bytes": b"y"})


def list_images(split: Path) -> list[tuple[int, str, bytes]]:
    return [
        (label, path.name, path.read_bytes())
        for label, name in enumerate(CLASSES)
        for path in sorted((split / name).iterdir())
    ]


def write_tar(path: Path, members: dict[str, bytes] | list[tuple[str, bytes]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in dict.items(members) if isinstance(members, dict) else members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_tars(folder: Path, to: Path, labels: str = "name") -> None:
    """Write two shards of each split, with labels stored according to `labels`."""
    for split, stem in (("train", "train"), ("val", "imagenet-validation")):
        for number in range(2):
            members = {}
            for label, name, content in list_images(folder / split)[number::2]:
                key = f"./{CLASSES[label]}-{name.partition('.')[0]}"
                files = {"json": json.dumps({"label": label, "width": 3}), "number": str(label)}
                suffix = "json" if labels == "json" else "cls"
                members[f"{key}.jpg"] = content
                members[f"{key}.{suffix}"] = files.get(labels, CLASSES[label]).encode()
            write_tar(to / f"{stem}-{number:04}.tar", members)
    if labels != "name":
        (to / "classnames.txt").write_text("".join(f"{name}\n" for name in CLASSES))


def write_rows(
    path: Path, cells: list, labels: list, description: object = None, group: int = 4
) -> None:
    """Write a parquet file in the Hugging Face format."""
    arrow = pytest.importorskip("pyarrow")
    writer = pytest.importorskip("pyarrow.parquet")
    text = description if isinstance(description, str) else json.dumps(description)
    table = arrow.table({"image": cells, "label": labels})
    path.parent.mkdir(parents=True, exist_ok=True)
    described = table.replace_schema_metadata({"huggingface": text})
    writer.write_table(described, path, row_group_size=group)


def describe_classes(feature: object) -> dict:
    return {"info": {"features": {"label": feature}}}


def write_parquet(folder: Path, to: Path, group: int = 4) -> None:
    """Write a Hugging Face dataset with `group` rows per row group."""
    for split, stem in (("train", "train"), ("val", "validation")):
        labels, names, contents = zip(*list_images(folder / split), strict=True)
        cells = [
            {"bytes": content, "path": name} for content, name in zip(contents, names, strict=True)
        ]
        path = to / "data" / f"{stem}-0-of-1.parquet"
        described = describe_classes({"names": [*CLASSES]})
        write_rows(path, cells, [*labels], described, group)


def assert_shards_rejected(folder: Path, message: str) -> None:
    with pytest.raises(NotReadyError, match=message):
        find_shards(folder)


@pytest.mark.parametrize("kind", ["json", "number", "name", "parquet"])
def test_shards_convert_like_folders(kind, image_folder, tmp_path):
    if kind == "parquet":
        write_parquet(image_folder, tmp_path / "shards")
    else:
        write_tars(image_folder, tmp_path / "shards", kind)
    convert(image_folder, tmp_path / "from-folder", RAW, do_nothing)
    convert(tmp_path / "shards", tmp_path / "from-shards", RAW, do_nothing)
    for split in ("train.beton", "val.beton"):
        expected = read_samples(tmp_path / "from-folder" / split)
        assert read_samples(tmp_path / "from-shards" / split) == expected
        assert open_beton(tmp_path / "from-shards" / split).classes == CLASSES
        assert expected


def test_changed_shard_is_another_source(image_folder, tmp_path):
    write_tars(image_folder, tmp_path)
    alone = find_shards(tmp_path)
    other = tmp_path / "test-0000.tar"
    other.write_bytes(b"not even read")  # only the first by name is read
    write_tar(tmp_path / "train-9.tar", {"x.jpg": b"", "x.cls": b"ant"})
    shards = find_shards(tmp_path)
    assert shards["val"].fingerprint == alone["val"].fingerprint
    assert shards["train"].fingerprint != alone["train"].fingerprint
    assert forecast(tmp_path, tmp_path / "out", RAW).ignored_files == (str(other),)


def test_row_groups_stay_together_in_random_order(image_folder, tmp_path):
    write_parquet(image_folder, tmp_path, group=3)
    source = find_shards(tmp_path)["train"]
    order = source.shuffle(np.random.default_rng(0))
    assert sorted(order) == [*range(len(source.images.labels))] != [*order]
    groups = [index // 3 for index in order]
    assert sum(a != b for a, b in pairwise(groups)) == len({*groups}) - 1
    shards.read_row_group.cache_clear()
    for index in order:
        source.images.read(index)
    assert shards.read_row_group.cache_info().misses == len({*groups})


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a.jpg": b"x"}, "sample /a lacks a label"),
        ({"d/a.cls": b"1"}, "sample d/a lacks an image"),
        ({"a.jpg": b"x", "a.json": b'{"label": ['}, "lacks a label"),
        ({"a.jpg": b"x", "a.json": b"[" * 10_000}, "lacks a label"),
        ({"a.jpg": b"x", "a.cls": b"1" * 100_000}, "lacks a label"),
        ({}, r"a\.tar has no images"),
        ({"a.jpg": b"x", "a.png": b"y", "a.cls": b"1"}, "more than one image or label: a.jpg, a.p"),
        *(
            ({"a.jpg": b"x", "a.json": b'{"label": %s}' % label}, "sample /a lacks a label")
            for label in (b"null", b"true", b"[3, 4]", b"-1", b'"-1"', b"0.5", b"1000000")
        ),
        ({"a.jpg": b"x", "a.cls": b"-1", "a.json": b'{"label": 3}'}, "sample /a lacks a label"),
        ({"a.jpg": b"x", "a.cls": b"\xff"}, "sample /a lacks a label"),
        ({"a.jpg": b"x", "a.cls": b"a" * 201}, "name of at most 200 characters in .cls"),
    ],
)
def test_incomplete_sample_is_named(members, message, tmp_path):
    write_tar(tmp_path / "a.tar", members)
    assert_shards_rejected(tmp_path, message)


def test_shards_reject_samples_of_one_name(tmp_path):
    twice = [("0.jpg", b"x"), ("0.cls", b"0"), ("0.jpg", b"y"), ("0.cls", b"1")]
    write_tar(tmp_path / "a.tar", twice)
    assert_shards_rejected(tmp_path, "more than one image or label: 0.jpg, 0.cls, 0.jpg, 0.cls")


def test_damaged_or_unlabeled_shards_are_rejected(tmp_path):
    writer = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1" * 10)
    assert_shards_rejected(tmp_path, "cannot be read as a parquet file")
    with path.open("wb") as file:
        file.truncate(1 << 31)
        file.seek(0, os.SEEK_END)
        file.write(((1 << 31) - 4).to_bytes(4, "little") + b"PAR1")
    assert_shards_rejected(tmp_path, "its description is larger than 67,108,864 bytes")
    writer.write_table(pytest.importorskip("pyarrow").table({"img": [b""], "label": [1]}), path)
    assert_shards_rejected(tmp_path, "needs one column image and one label, and has img, label")
    write_rows(path, [], [])
    assert_shards_rejected(tmp_path, r"a\.parquet has no images")
    write_tar(tmp_path / "a.tar", {"a.jpg": bytes(2000), "a.cls": b"1"})
    os.truncate(tmp_path / "a.tar", 1000)
    assert_shards_rejected(tmp_path, "cannot be read as a tar file")
    for name, label in (("a", b"2"), ("b", b"cat")):
        write_tar(tmp_path / f"{name}.tar", {"a.jpg": b"x", "a.cls": label})
    assert_shards_rejected(tmp_path, "numbers and names as labels: 2, cat")


def test_archive_next_to_class_folders_is_ignored(image_folder, tmp_path):
    (tmp_path / "train").symlink_to(image_folder / "train")
    (tmp_path / "ILSVRC2012_img_train.tar").write_bytes(b"anything")
    assert find_shards(tmp_path) == {}


@pytest.mark.parametrize(
    "names",
    [5, "antbee", ["ant"], ["ant", "ant"], ["ant", 3], ["ant", None], [["ant"], ["bee"]], {}],
)
def test_class_names_in_shards_are_validated(names, tmp_path):
    write_rows(tmp_path / "a.parquet", [*TWO], [0, 1], describe_classes({"names": names}))
    assert_shards_rejected(tmp_path, "must name at least 2 different classes")


@pytest.mark.parametrize(
    "feature",
    [
        "5",
        "[]",
        '"names"',
        "null",
        *(
            f'{{"names": ["ant", "bee"], "aside": {aside}}}'
            for aside in ("[" * 100_000 + "]" * 100_000, "9" * 400, "NaN")
        ),
    ],
    ids=range(7),
)
def test_missing_or_oversized_description_leaves_numbers(feature, tmp_path):
    described = f'{{"info": {{"features": {{"label": {feature}}}}}}}'
    write_rows(tmp_path / "a.parquet", [*TWO], [0, 1], described)
    assert find_shards(tmp_path)[""].classes == ("0", "1")


@pytest.mark.parametrize("cells", [[{"path": "x"}], [5], ["text"], [None], [{"bytes": "text"}]])
def test_parquet_cells_without_bytes_are_unreadable_images(cells, tmp_path):
    write_rows(tmp_path / "a.parquet", cells, [0])
    with pytest.raises(NotReadyError, match=r"a\.parquet: row 0"):
        convert(tmp_path, tmp_path / "out.beton", RAW, do_nothing)


def test_bad_image_is_named_by_shard_and_member(tmp_path):
    write_tar(tmp_path / "a.tar", {"one.jpg": b"bad", "one.cls": b"ant"})
    with pytest.raises(NotReadyError, match=r"a\.tar: one\.jpg") as failure:
        convert(tmp_path, tmp_path / "out.beton", RAW, do_nothing)
    assert failure.value.problems[0].corrections == (
        "on_bad_image=skip",
    )  # `doctor` reads no shards


def test_group_of_rows_too_large_is_not_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "_MAX_GROUP_BYTES", 500)
    write_rows(tmp_path / "a.parquet", [{"bytes": os.urandom(600)}], [0])
    writer = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(writer.ParquetFile, "iter_batches", None)
    with pytest.raises(ValueError, match="group of rows has more than 1,073,741,824 bytes"):
        shards.read_row_group(str(tmp_path / "a.parquet"), 0)


def test_repeated_large_value_is_decoded_in_parts(tmp_path, monkeypatch):
    arrow = pytest.importorskip("pyarrow")
    rows = 64
    write_rows(tmp_path / "a.parquet", [{"bytes": bytes(1 << 20)}] * rows, [0] * rows, group=rows)
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    monkeypatch.setattr(shards, "_MAX_GROUP_BYTES", 40 << 20)
    monkeypatch.setattr(shards, "_MAX_BATCH_BYTES", 2 << 20)
    before = arrow.default_memory_pool().max_memory()
    with pytest.raises(ValueError, match="group of rows"):
        shards.read_row_group(str(tmp_path / "a.parquet"), 0)
    assert arrow.default_memory_pool().max_memory() - before < 32 << 20


@pytest.mark.parametrize("labels", [[None], [True], [-1], [10**6], ["a" * 201], [""], [0.5]])
def test_parquet_rejects_value_that_is_not_label(tmp_path, labels):
    write_rows(tmp_path / "a.parquet", [TWO[0]], labels)
    assert_shards_rejected(
        tmp_path, "has no label in row 0: a number from 0 to 999,999, or a name of at most 200"
    )


def test_parquet_rejects_two_label_columns(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    columns = [arrow.array([{"bytes": b"x"}]), arrow.array([0]), arrow.array([1])]
    table = arrow.Table.from_arrays(columns, names=["image", "label", "label"])
    pytest.importorskip("pyarrow.parquet").write_table(table, path)
    assert_shards_rejected(
        tmp_path, "needs one column image and one label, and has image, label, label"
    )


def test_class_names_file_is_read_within_limits(tmp_path):
    names = tmp_path / "classnames.txt"
    write_tar(tmp_path / "a.tar", {"a.jpg": b"x", "a.cls": b"1"})
    names.write_bytes(b"\xff\xfe\n\xff\xfd\xff\n")
    assert len(find_shards(tmp_path)[""].classes) == 2
    names.write_text("ant\n")
    assert_shards_rejected(tmp_path, "at least 2 different classes")
    names.unlink()
    os.mkfifo(names)
    assert_shards_rejected(tmp_path, "Not a regular file")
