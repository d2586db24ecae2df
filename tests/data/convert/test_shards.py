"""Shards of other programs are converted to what the folder of the same images is converted to."""

import io
import json
import os
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.beton.file import open_beton
from resnet_recipes.data.convert import parquet
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.convert.forecast import forecast
from resnet_recipes.data.convert.run import convert
from resnet_recipes.data.convert.shards import shards_of

RAW = ConvertOptions("raw", workers=1)
CLASSES = ("ant", "bee", "cat")


def silent(*_) -> None:
    """Show no progress."""


def images(split: Path) -> list[tuple[int, str, bytes]]:
    """Return (label, name, content) of every image of a split."""
    return [
        (label, path.name, path.read_bytes())
        for label, name in enumerate(CLASSES)
        for path in sorted((split / name).iterdir())
    ]


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_tars(folder: Path, to: Path, labels: str) -> None:
    """Write two shards of each split, with labels as `labels` says."""
    for split, stem in (("train", "train"), ("val", "imagenet-validation")):
        found = images(folder / split)
        for number in range(2):
            members = {}
            for label, name, content in found[number::2]:
                key = f"{CLASSES[label]}-{name.partition('.')[0]}"
                members[f"./{key}.jpg"] = content
                said = {"json": json.dumps({"label": label, "width": 3}), "number": str(label)}
                suffix = "json" if labels == "json" else "cls"
                members[f"./{key}.{suffix}"] = said.get(labels, CLASSES[label]).encode()
            write_tar(to / f"{stem}-{number:04}.tar", members)
    if labels != "name":
        (to / "classnames.txt").write_text("".join(f"{name}\n" for name in CLASSES))


def write_parquet(folder: Path, to: Path, group: int = 4) -> None:
    """Write a Hugging Face dataset, `group` rows in each group."""
    arrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    features = {"label": {"names": [*CLASSES], "_type": "ClassLabel"}}
    described = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    (to / "data").mkdir(parents=True)
    for split, stem in (("train", "train"), ("val", "validation")):
        found = images(folder / split)
        cells = [{"bytes": content, "path": name} for _, name, content in found]
        table = arrow.table({"image": cells, "label": [label for label, _, _ in found]})
        path = to / "data" / f"{stem}-00000-of-00001.parquet"
        writer.write_table(table.replace_schema_metadata(described), path, row_group_size=group)


def contents(path: Path) -> list[tuple[int, bytes]]:
    """Return (label, bytes) of every sample, sorted."""
    beton = open_beton(path)
    assert beton.classes == CLASSES
    samples = enumerate(beton.labels)
    return sorted((int(label), beton.sample(index).tobytes()) for index, label in samples)


@pytest.mark.parametrize("kind", ["json", "number", "name", "parquet"])
def test_shards_become_what_their_images_in_folders_become(kind, folder, tmp_path):
    if kind == "parquet":
        write_parquet(folder, tmp_path / "shards")
    else:
        write_tars(folder, tmp_path / "shards", kind)
    convert(folder, tmp_path / "from-folder", RAW, silent)
    convert(tmp_path / "shards", tmp_path / "from-shards", RAW, silent)
    for split in ("train.beton", "val.beton"):
        wanted = contents(tmp_path / "from-folder" / split)
        assert contents(tmp_path / "from-shards" / split) == wanted
        assert wanted


def test_of_two_validation_sets_the_first_by_name_counts_and_the_other_is_listed(folder, tmp_path):
    write_tars(folder, tmp_path / "shards", "name")
    alone = shards_of(tmp_path / "shards")["val"]
    (tmp_path / "shards" / "test-0000.tar").write_bytes(b"not even read")
    both = shards_of(tmp_path / "shards")
    assert both["val"].fingerprint == alone.fingerprint
    left_out = forecast(tmp_path / "shards", tmp_path / "out", RAW).left_out
    assert left_out == (str(tmp_path / "shards" / "test-0000.tar"),)


def test_a_conversion_of_shards_is_resumed_and_a_changed_shard_starts_it_again(folder, tmp_path):
    write_tars(folder, tmp_path / "shards", "name")
    first = shards_of(tmp_path / "shards")["train"]
    assert shards_of(tmp_path / "shards")["train"].fingerprint == first.fingerprint
    write_tar(tmp_path / "shards" / "train-9.tar", {"x.jpg": b"", "x.cls": b"ant"})
    assert shards_of(tmp_path / "shards")["train"].fingerprint != first.fingerprint


def test_a_bad_image_of_a_shard_is_named_by_shard_and_member(folder, tmp_path):
    write_tar(tmp_path / "shards" / "a.tar", {"one.jpg": b"bad", "one.cls": b"ant"})
    with pytest.raises(NotReadyError, match=r"a\.tar: one\.jpg"):
        convert(tmp_path / "shards", tmp_path / "out.beton", RAW, silent)


def test_groups_of_rows_stay_together_in_a_random_order(folder, tmp_path, monkeypatch):
    write_parquet(folder, tmp_path / "shards", group=3)
    source = shards_of(tmp_path / "shards")["train"]
    order = source.shuffled(np.random.default_rng(0))
    assert sorted(order) == [*range(len(source.labels))]
    assert [*order] != sorted(order)
    groups = [index // 3 for index in order]
    changes = sum(a != b for a, b in pairwise(groups))
    assert changes == len({*groups}) - 1
    parquet.group.cache_clear()
    for index in order:
        source.read(index)
    assert parquet.group.cache_info().misses == len({*groups})


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"a.jpg": b"x"}, "sample /a lacks a label"),
        ({"d/a.cls": b"1"}, "sample d/a lacks an image"),
        ({"a.jpg": b"x", "a.json": b'{"label": ['}, "lacks a label"),
        ({"a.jpg": b"x", "a.json": b"[" * 10_000}, "lacks a label"),
        ({"a.jpg": b"x", "a.cls": b"1" * 100_000}, "lacks a label"),
    ],
)
def test_a_sample_that_is_not_whole_is_named(members, said, tmp_path):
    write_tar(tmp_path / "a.tar", members)
    with pytest.raises(NotReadyError, match=said):
        shards_of(tmp_path)


def test_files_that_are_damaged_or_without_labels_are_named(tmp_path):
    writer = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "a.parquet").write_bytes(b"PAR1" * 10)
    with pytest.raises(NotReadyError, match="cannot be read as a parquet file"):
        shards_of(tmp_path)
    table = pytest.importorskip("pyarrow").table({"img": [b""], "label": [1]})
    writer.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(NotReadyError, match="needs columns image and label, and has img, label"):
        shards_of(tmp_path)
    write_tar(tmp_path / "a.tar", {"a.jpg": bytes(2000), "a.cls": b"1"})
    (tmp_path / "a.tar").write_bytes((tmp_path / "a.tar").read_bytes()[:1000])
    with pytest.raises(NotReadyError, match="cannot be read as a tar file"):
        shards_of(tmp_path)
    write_tar(tmp_path / "a.tar", {"a.jpg": b"x", "a.cls": b"2"})
    write_tar(tmp_path / "b.tar", {"a.jpg": b"x", "a.cls": b"cat"})
    with pytest.raises(NotReadyError, match="numbers and labels that are names: 2, cat"):
        shards_of(tmp_path)
    (tmp_path / "b.tar").unlink()
    (tmp_path / "classes.txt").write_text("ant\nbee\n")
    with pytest.raises(NotReadyError, match="at least 3 different classes"):
        shards_of(tmp_path)


def test_an_archive_beside_class_folders_is_not_a_shard(folder, tmp_path):
    (tmp_path / "train").symlink_to(folder / "train")
    (tmp_path / "ILSVRC2012_img_train.tar").write_bytes(b"anything")
    assert shards_of(tmp_path) == {}


@pytest.mark.parametrize(
    "names",
    [5, "antbee", ["ant"], ["ant", "ant"], ["ant", 3], ["ant", None], [["ant"], ["bee"]], {}],
)
def test_class_names_of_a_stranger_are_checked(names, tmp_path):
    write_rows(tmp_path, [{"bytes": b"x"}, {"bytes": b"y"}], {"names": names})
    with pytest.raises(NotReadyError, match="must name at least 2 different classes"):
        shards_of(tmp_path)


@pytest.mark.parametrize("feature", [5, [], "names", None])
def test_a_description_that_is_none_leaves_numbers(feature, tmp_path):
    write_rows(tmp_path, [{"bytes": b"x"}, {"bytes": b"y"}], feature)
    assert shards_of(tmp_path)[""].classes == ("0", "1")


@pytest.mark.parametrize("aside", ["[" * 100_000 + "]" * 100_000, "9" * 400, "NaN"])
def test_a_description_beyond_the_limits_of_json_leaves_numbers(aside, tmp_path):
    named = {"names": ["ant", "bee"], "aside": 0}
    described = json.dumps({"info": {"features": {"label": named}}}).replace("0", aside)
    write_rows(tmp_path, [{"bytes": b"x"}, {"bytes": b"y"}], named, described)
    assert shards_of(tmp_path)[""].classes == ("0", "1")


def test_a_parquet_file_whose_description_is_huge_is_not_read(tmp_path):
    with (tmp_path / "a.parquet").open("wb") as file:
        file.truncate(1 << 31)
        file.seek(0, os.SEEK_END)
        file.write(((1 << 31) - 4).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(NotReadyError, match="its description is larger than 67,108,864 bytes"):
        shards_of(tmp_path)


def write_rows(folder: Path, cells: list, feature: object, described: str = "") -> None:
    """Write a parquet file with labels 0, 1, ... and a description of them."""
    arrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    described = described or json.dumps({"info": {"features": {"label": feature}}})
    table = arrow.table({"image": cells, "label": [*range(len(cells))]})
    writer.write_table(
        table.replace_schema_metadata({"huggingface": described}), folder / "a.parquet"
    )


@pytest.mark.parametrize("cells", [[{"path": "x"}], [5], ["text"], [None], [{"bytes": "text"}]])
def test_cells_without_bytes_are_unreadable_images(cells, tmp_path):
    write_rows(tmp_path, cells, None)
    with pytest.raises(NotReadyError, match=r"a\.parquet: row 0"):
        convert(tmp_path, tmp_path / "out.beton", RAW, silent)


def test_a_group_of_rows_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_MOST_GROUP", 100)
    write_rows(tmp_path, [{"bytes": bytes(200)}], None)
    with pytest.raises(NotReadyError, match="group of rows has more than 100 bytes"):
        convert(tmp_path, tmp_path / "out.beton", RAW, silent)


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_a_shard_without_images_is_named(kind, tmp_path):
    if kind == "tar":
        write_tar(tmp_path / "a.tar", {})
    else:
        write_rows(tmp_path, [], None)
    with pytest.raises(NotReadyError, match=rf"a\.{kind}: has no images"):
        shards_of(tmp_path)


def test_a_file_of_class_names_is_read_within_limits(tmp_path):
    write_tar(tmp_path / "a.tar", {"a.jpg": b"x", "a.cls": b"1"})
    (tmp_path / "classnames.txt").write_bytes(b"\xff\xfe\n\xff\xfd\xff\n")
    assert len(shards_of(tmp_path)[""].classes) == 2
    (tmp_path / "classnames.txt").unlink()
    os.mkfifo(tmp_path / "classnames.txt")
    with pytest.raises(NotReadyError, match="Not a regular file"):
        shards_of(tmp_path)
