"""A small folder of images for the loaders."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.data.convert.encode import ConvertOptions
from resnet_recipes.data.convert.run import convert

sys.path.append(str(Path(__file__).parent))  # loader workers import augmentations.py by name

CLASSES = ("ant", "bee", "cat")
TRAIN, VAL = 37, 11


def image(number: int) -> Image.Image:
    """Return smooth noise whose size and mean follow from `number`, to tell images apart."""
    rng = np.random.default_rng(number)
    width, height = (int(side) for side in rng.integers(40, 90, 2))
    coarse = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.BICUBIC)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """37 training and 11 validation JPEGs in three classes."""
    root = tmp_path_factory.mktemp("images")
    for split, count in (("train", TRAIN), ("val", VAL)):
        for number in range(count):
            path = root / split / CLASSES[number % 3] / f"{number:03d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            image(number + 1000 * (split == "val")).save(path, quality=90)
    return root


@pytest.fixture(scope="session")
def betons(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images of `folder` as train.beton and val.beton, JPEG and raw mixed."""
    root = tmp_path_factory.mktemp("betons")
    convert(folder, root, ConvertOptions(workers=1), lambda *_: None)
    return root
