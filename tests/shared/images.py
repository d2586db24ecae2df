"""Small images and folders of them, for tests of all packages that read images."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = tuple(f"pattern{number}" for number in range(10))
HEIGHT, WIDTH = 150, 211


def make_noise(height: int, width: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(pixels)


def make_photo(seed: int = 0, height: int = HEIGHT, width: int = WIDTH) -> Image.Image:
    """Return smooth colors with some noise."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 11, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.BICUBIC))
    noisy = smooth + rng.normal(0, 6, (height, width, 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def encode_image(image: Image.Image, kind: str = "JPEG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def create_random_images(
    root: Path, classes: Sequence[str] = CLASSES, train: int = 1, val: int = 3
) -> Path:
    """Write JPEGs with 40 rows and 48 columns, `train` and `val` per class; return `root`."""
    rng = np.random.default_rng(0)
    for split, count in (("train", train), ("val", val)):
        for name in classes:
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{number}.jpg", quality=95)
    return root
