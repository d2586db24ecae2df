"""The RandAugment variant of timm; each operation matches timm pixels."""

from itertools import product

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.methods.increasing_randaugment import STRENGTHS, IncreasingRandAugment, apply
from tests.shared.images import make_noise

#: Values that the settings must reject.
WRONG = {
    "depth": [0, 21],
    "p": [-0.1, 1.1],
    "magnitude": [-1, 11],
    "deviation": [-1],
    "interpolation": ["area"],
}

IMAGE = make_noise(40, 56)
PEERS = dict(
    zip(
        STRENGTHS,
        (
            "AutoContrast",
            "Equalize",
            "Invert",
            "Rotate",
            "PosterizeIncreasing",
            "SolarizeIncreasing",
            "SolarizeAdd",
            "ColorIncreasing",
            "ContrastIncreasing",
            "BrightnessIncreasing",
            "SharpnessIncreasing",
            "ShearX",
            "ShearY",
            "TranslateXRel",
            "TranslateYRel",
        ),
        strict=True,
    )
)


@pytest.mark.parametrize("name", STRENGTHS)
def test_increasing_randaugment_pixels_match_timm(name):
    peer = pytest.importorskip("timm.data.auto_augment")
    filters = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)
    for magnitude, resample in product([0.0, 3.3, 7.0, 9.7], filters):
        op = peer.AugmentOp(
            PEERS[name],
            prob=1.0,
            magnitude=magnitude,
            hparams={"img_mean": (124, 116, 104), "interpolation": resample},
        )
        theirs = {op(IMAGE).tobytes() for _ in range(20)}
        levels = (magnitude / 10, -magnitude / 10)
        ours = {apply(name, IMAGE, level, resample).tobytes() for level in levels}
        assert theirs == ours


def test_increasing_randaugment_has_operations_of_timm():
    peer = pytest.importorskip("timm.data.auto_augment")
    assert sorted(PEERS.values()) == sorted(peer._RAND_INCREASING_TRANSFORMS)


def test_increasing_randaugment_applies_half_of_sampled_operations():
    augment = IncreasingRandAugment(depth=1, p=0.5).augment_image()
    same = sum(
        augment(IMAGE, np.random.default_rng(seed)).tobytes() == IMAGE.tobytes()
        for seed in range(400)
    )
    assert 160 < same < 260


def test_increasing_randaugment_clips_magnitudes_to_their_range():
    """Half of the magnitudes are negative, and a third is above 10."""
    method = IncreasingRandAugment(depth=1, p=1.0, magnitude=0.0, deviation=10.0)
    levels = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "resnet_recipes.methods.increasing_randaugment.apply",
            lambda _, image, level, __: levels.append(level) or image,
        )
        rng = np.random.default_rng(0)
        for _ in range(200):
            method.augment_image()(IMAGE, rng)
    assert 60 < sum(level == 0 for level in levels) < 140
    assert max(map(abs, levels)) == 1
