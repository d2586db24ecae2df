"""A flat validation set gets class folders of links, either completely or not at all."""

from pathlib import Path

import pytest

from resnet_recipes.base.errors import Kind, NotReadyError
from resnet_recipes.doctor import get_exit_code
from resnet_recipes.doctor.data import check_data
from resnet_recipes.doctor.val_tree import build_val_tree
from tests.shared.checks import get_problem

MAPS = {
    "csv with a header": "ImageId,Class\nant2,ant\nbee2,bee\ncat2,cat\n",
    "Kaggle's": "ImageId,PredictionString\ncat2,cat 85 1 499 272\nant2,ant 1 2 3 4 ant 5 6 7 "
    "8\nbee2,bee 1 2 3 4\n",
    "names with endings, by space": "ant2.jpg ant\ncat2.jpg cat\nbee2.jpg bee\n",
    "tabs": "ant2.jpg\tant\ncat2.jpg\tcat\nbee2.jpg\tbee\n",
    "one class a line": "ant\nbee\ncat\n",
}


@pytest.fixture
def root_with_flat_val(image_folder: Path) -> Path:
    """The data folder with all validation images directly in val/."""
    for path in list((image_folder / "val").glob("*/*")):
        path.rename(image_folder / "val" / path.name)
        path.parent.rmdir()
    return image_folder


def write_text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_val_tree_reads_tiny_imagenet_as_advised(root_with_flat_val):
    """Its images are in val/images, and val/val_annotations.txt lists their classes."""
    (root_with_flat_val / "val").rename(root_with_flat_val / "images")
    (root_with_flat_val / "val").mkdir()
    (root_with_flat_val / "images").rename(root_with_flat_val / "val/images")
    annotations = write_text(root_with_flat_val / "val/val_annotations.txt", MAPS["tabs"])
    finding, *_ = check_data(root_with_flat_val)
    assert finding.fix[0].split()[-2:] == ["--fix-val", str(annotations)]
    tree = build_val_tree(root_with_flat_val, annotations)
    assert get_exit_code(check_data(tree)) == 0


@pytest.mark.parametrize("name", MAPS)
def test_val_tree_links_images_without_moving_them(root_with_flat_val, tmp_path, name):
    before = sorted(root_with_flat_val.rglob("*"))
    tree = build_val_tree(root_with_flat_val, write_text(tmp_path / "map", MAPS[name]))
    links = sorted(str(path.relative_to(tree)) for path in (tree / "val").glob("*/*"))
    assert links == ["val/ant/ant2.jpg", "val/bee/bee2.jpg", "val/cat/cat2.jpg"]
    assert get_exit_code(check_data(tree)) == 0
    assert sorted(root_with_flat_val.rglob("*")) == before


@pytest.mark.parametrize("split", ["train", "val"])
def test_val_tree_reports_missing_split(root_with_flat_val, tmp_path, split):
    (root_with_flat_val / split).rename(tmp_path / "elsewhere")
    problem = get_problem(
        NotReadyError,
        build_val_tree,
        root_with_flat_val,
        write_text(tmp_path / "map", MAPS["one class a line"]),
    )
    assert (problem.key, problem.kind) == (str(root_with_flat_val / split), Kind.ABSENT)


def test_val_tree_maps_numbers_only_by_names(root_with_flat_val, tmp_path):
    numbers = write_text(tmp_path / "truth.txt", "3\n1\n2\n")
    with pytest.raises(NotReadyError, match="numbers"):
        build_val_tree(root_with_flat_val, numbers)
    names = write_text(tmp_path / "names.txt", "bee  insect\ncat\nant\n")
    with pytest.raises(NotReadyError, match="gives class 0"):
        build_val_tree(root_with_flat_val, write_text(tmp_path / "from0.txt", "2\n0\n1\n"), names)
    tree = build_val_tree(root_with_flat_val, numbers, names)
    assert {path.parent.name: path.name for path in (tree / "val").glob("*/*")} == {
        "ant": "ant2.jpg",
        "bee": "bee2.jpg",
        "cat": "cat2.jpg",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ant2 ant\nbee2 bee\n", "no class for 1 of 3"),
        ("ant2 ant\nbee2 bee\ncat2 dog\n", "lacks: dog"),
        ("ant\nbee\n", "2 lines"),
        ("\xff", "no class for|1 lines"),
    ],
)
def test_val_tree_rejects_map_of_other_images(root_with_flat_val, tmp_path, text, message):
    with pytest.raises(NotReadyError, match=message):
        build_val_tree(root_with_flat_val, write_text(tmp_path / "map", text))
    assert not (tmp_path / "data-by-class").exists()


def test_val_tree_keeps_an_existing_tree(root_with_flat_val, tmp_path):
    build_val_tree(root_with_flat_val, write_text(tmp_path / "map", MAPS["tabs"]))
    with pytest.raises(NotReadyError, match="already exists"):
        build_val_tree(root_with_flat_val, tmp_path / "map")


@pytest.mark.parametrize("names", ["missing.txt", "folder"])
def test_val_tree_rejects_unreadable_names(root_with_flat_val, tmp_path, names):
    (tmp_path / "folder").mkdir()
    numbers = write_text(tmp_path / "truth.txt", "3\n1\n2\n")
    with pytest.raises(NotReadyError, match=f"{names} cannot be read"):
        build_val_tree(root_with_flat_val, numbers, tmp_path / names)
    assert not list(tmp_path.glob("*by-class*"))
