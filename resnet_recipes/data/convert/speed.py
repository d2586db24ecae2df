"""Measure how fast encoded images can be cropped."""

import time
from collections.abc import Sequence

import numpy as np

from resnet_recipes.data.beton.file import RAW
from resnet_recipes.data.convert.encode import Encoded
from resnet_recipes.data.crop import TrainCrop
from resnet_recipes.data.native.engine import Engine
from resnet_recipes.data.native.library import why_not
from resnet_recipes.data.native.rows import CROP, blank_rows

_MOST = 100  # images: a fraction of a second


def images_per_second(images: Sequence[Encoded], side: int) -> float | None:
    """Return how many random crops of `side` pixels one core makes per second.

    None if the engine is not built.
    """
    if why_not() or not images:
        return None
    images = images[:_MOST]
    indices = np.arange(len(images))
    data = [np.frombuffer(image.data, np.uint8) for image in images]
    draws, _ = TrainCrop(0, (0.08, 1.0), (0.75, 4 / 3), flip=False).attempts(
        0, indices, np.zeros_like(indices)
    )
    pixels, wanted = np.empty((side, side, 3), np.uint8), blank_rows(len(images))
    wanted["data"], wanted["length"] = [one.ctypes.data for one in data], [one.size for one in data]
    wanted["raw"] = [image.mode == RAW for image in images]
    wanted["size"] = [(image.height, image.width) for image in images]
    wanted["draws"] = draws.ctypes.data + indices * draws.strides[0]
    wanted["geometry"], wanted["side"], wanted["pixels"] = CROP, side, pixels.ctypes.data
    with Engine(1) as engine:
        started = time.process_time()
        engine.fill(wanted, np.empty(len(images), bool))
        return len(images) / max(time.process_time() - started, 1e-9)
