"""TrivialAugment matches torchvision, with a random generator per image."""

import numpy as np
from PIL import Image
from torchvision.transforms import TrivialAugmentWide
from torchvision.transforms.autoaugment import InterpolationMode, _apply_op

from resnet_recipes.methods.trivial_augment import TrivialAugment
from tests.shared.images import make_noise

IMAGE = make_noise(64, 64)


def list_possible(image: Image.Image) -> set[bytes]:
    """Return every image that the torchvision transform can produce from an image."""
    images = set()
    for name, (strengths, signed) in TrivialAugmentWide()._augmentation_space(31).items():
        for strength in strengths.reshape(-1).tolist():
            for sign in (1, -1) if signed else (1,):
                images.add(
                    _apply_op(
                        image, name, sign * strength, InterpolationMode.BILINEAR, None
                    ).tobytes()
                )
    return images


def test_trivial_augment_matches_torchvision_over_its_range():
    augment = TrivialAugment().augment_image()
    expected = list_possible(IMAGE)
    results = {augment(IMAGE, np.random.default_rng(seed)).tobytes() for seed in range(3000)}
    assert results <= expected
    assert len(results) > 0.9 * len(expected)


def test_posterize_keeps_as_many_bits_as_torchvision():
    bits, _ = TrivialAugmentWide()._augmentation_space(31)["Posterize"]
    augment = TrivialAugment().augment_image()
    sampled = {
        value
        for seed in range(3000)
        for name, value in augment.sample(64, np.random.default_rng(seed))
        if name == "posterize"
    }
    assert sampled == set(bits.tolist())
