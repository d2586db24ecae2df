"""Augmentations that loader workers import without importing a test."""

import os
import time
from pathlib import Path

import numpy as np
from PIL import Image


class Darken:
    """An augmentation that uses its random generator and fails on request."""

    def __init__(self, failure: type[BaseException] | None = None):
        self.failure = failure

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        if self.failure:
            raise self.failure("on purpose")
        share = rng.uniform(0.2, 0.8)
        return image.point(lambda value: int(value * share))


class LocalError(Exception):
    """An exception that cannot be unpickled: it takes two arguments and stores neither."""

    def __init__(self, message: str, second: int = 0):
        super().__init__()
        self.close = lambda: message


class Stall:
    """An augmentation that writes its process id into a file name and then hangs."""

    def __init__(self, note: Path):
        self.note = note

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        self.note.with_suffix(f".{os.getpid()}").touch()
        time.sleep(60)
        return image
