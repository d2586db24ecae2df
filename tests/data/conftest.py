"""Fixtures of tests of data: a small folder of images, and .beton files of it."""

import shutil
import sys
from pathlib import Path

import pytest

from resnet_recipes import data
from resnet_recipes.data import convert as convert_module
from resnet_recipes.data import images
from resnet_recipes.data.convert.encode import ConvertOptions
from tests.data.loaders import (
    CLASSES,
    SMALL_PAGE,
    TRAIN,
    VAL,
    convert_to_small_pages,
    make_image,
    requires_decoder,
)

sys.path.append(str(Path(__file__).parent))  # loader workers import augmentations.py by name


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """37 training and 11 validation JPEGs in three classes."""
    root = tmp_path_factory.mktemp("images")
    for split, count in (("train", TRAIN), ("val", VAL)):
        for number in range(count):
            path = root / split / CLASSES[number % 3] / f"{number:03d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            make_image(number + 1000 * (split == "val")).save(path, quality=90)
    return root


@pytest.fixture
def copied_images(image_folder: Path, tmp_path: Path) -> Path:
    """A copy of the images, for tests that change it."""
    return shutil.copytree(image_folder, tmp_path / "images")


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write files with pages of 1 MiB instead of 8."""
    monkeypatch.setattr(convert_module, "PAGE_SIZE", SMALL_PAGE)


@pytest.fixture(scope="session")
def betons(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images of `image_folder` as train.beton and val.beton, with JPEG and raw samples."""
    return convert_to_small_pages(
        image_folder, tmp_path_factory.mktemp("betons"), ConvertOptions(workers=1)
    )


@pytest.fixture
def copied_betons(betons: Path, tmp_path: Path) -> Path:
    """Valid files with their sidecars, for tests that damage them."""
    return Path(shutil.copytree(betons, tmp_path, dirs_exist_ok=True))


@pytest.fixture
def without_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode in Python, as without the native library."""
    for module in (data, images):
        monkeypatch.setattr(module, "find_decoder_fault", lambda: "was not built")


@pytest.fixture(params=[pytest.param("native", marks=requires_decoder), "python"])
def decoder_name(request: pytest.FixtureRequest) -> str:
    """Decode with the native decoder, or in Python."""
    if request.param == "python":
        request.getfixturevalue("without_decoder")
    return request.param
