"""A small data folder for tests that damage it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    """Three classes with two training images and one validation image each."""
    for split, numbers in (("train", (0, 1)), ("val", (2,))):
        for label, name in enumerate(("ant", "bee", "cat")):
            for number in numbers:
                path = tmp_path / "data" / split / name / f"{name}{number}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = np.random.default_rng((label, number)).integers(
                    0, 256, (20, 30, 3), np.uint8
                )
                Image.fromarray(pixels).save(path)
    return tmp_path / "data"
