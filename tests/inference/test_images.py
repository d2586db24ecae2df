"""Labels of other datasets are compared with the classes of a network."""

from pathlib import Path

import pytest

from resnet_recipes.base.errors import NotReadyError
from resnet_recipes.data.base import Batching, DataConfig
from resnet_recipes.data.convert import convert
from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.inference.images import open_labeled
from tests.shared.images import CLASSES, create_random_images

BATCHING = Batching(rank=0, world_size=1, global_size=1, eval_size=4, seed=0)


@pytest.fixture
def beton_folder(tmp_path: Path) -> DataConfig:
    convert(
        create_random_images(tmp_path / "images"),
        tmp_path / "betons",
        ConvertOptions("jpg", workers=1),
        lambda *_: None,
    )
    return DataConfig(root=str(tmp_path / "betons"), workers=0, eval_size=32, eval_resize=32)


def test_open_labeled_accepts_beton_classes_of_network(beton_folder):
    open_labeled(beton_folder, CLASSES, len(CLASSES), BATCHING).close()
    open_labeled(beton_folder, (), len(CLASSES), BATCHING).close()


def test_open_labeled_rejects_classes_in_another_order(beton_folder):
    with pytest.raises(NotReadyError, match="classes"):
        open_labeled(beton_folder, CLASSES[::-1], len(CLASSES), BATCHING)


def test_open_labeled_rejects_labels_beyond_the_network(beton_folder):
    with pytest.raises(NotReadyError, match=f"labels up to {len(CLASSES) - 1}"):
        open_labeled(beton_folder, (), len(CLASSES) - 1, BATCHING)


def test_open_labeled_rejects_another_kind_of_file(tmp_path):
    (tmp_path / "lite0.pth").write_bytes(b"PK")
    config = DataConfig(root=str(tmp_path / "lite0.pth"), workers=0)
    with pytest.raises(NotReadyError, match="is neither a folder nor a table"):
        open_labeled(config, CLASSES, len(CLASSES), BATCHING)
