"""Flips samples each symmetry of the square equally often, without interpolation."""

from collections import Counter

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.methods.flips import Flips

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)


def flip_with_seed(method: Flips, pixels: np.ndarray, seed: int) -> np.ndarray:
    augment = method.augment_image()
    return np.asarray(augment(Image.fromarray(pixels), np.random.default_rng(seed)))


def test_flips_reach_eight_symmetries_equally_often():
    symmetries = {
        np.rot90(image, quarter).tobytes(): (flip, quarter)
        for flip, image in enumerate((PIXELS, PIXELS[:, ::-1]))
        for quarter in range(4)
    }
    counts = Counter()
    for seed in range(800):
        loaded = PIXELS[:, ::-1] if seed % 2 else PIXELS  # horizontal flips of the loader
        counts[symmetries[flip_with_seed(Flips(), loaded, seed).tobytes()]] += 1
    assert len(counts) == 8
    assert min(counts.values()) > 70  # the mean is 100; a lower count occurs once in 2,000 samples


@pytest.mark.parametrize(
    ("method", "images"),
    [
        (Flips(turns=False), [PIXELS, PIXELS[::-1]]),
        (Flips(vertical=False), [PIXELS, PIXELS.transpose(1, 0, 2)]),
        (Flips(vertical=False, turns=False), [PIXELS]),
    ],
)
def test_disabled_flips_are_never_sampled(method, images):
    seen = {flip_with_seed(method, PIXELS, seed).tobytes() for seed in range(40)}
    assert seen == {image.tobytes() for image in images}
