"""ColorJitter matches torchvision pixels, and samples factors from the complete range."""

import numpy as np
from torchvision.transforms import functional as F

from resnet_recipes.methods.color_jitter import ColorJitter
from tests.shared.images import make_noise

IMAGE = make_noise(48, 48)

WRONG = {
    "brightness": (-0.1, 1.1),
    "contrast": (-0.1, 1.1),
    "saturation": (-0.1, 1.1),
    "hue": (-0.1, 0.6),
}

ADJUST = {
    "brightness": F.adjust_brightness,
    "contrast": F.adjust_contrast,
    "color": F.adjust_saturation,
}


def test_color_jitter_pixels_equal_torchvision():
    method = ColorJitter(brightness=0.9, contrast=0.5, saturation=1.0, hue=0.5)
    for seed in range(40):
        expected = IMAGE
        for name, value in method.augment_image().sample(48, np.random.default_rng(seed)):
            if name == "hue":
                turn = (value if value < 128 else value - 256) / 255
                expected = F.adjust_hue(expected, np.clip(turn * 1.0001, -0.5, 0.5))
            else:
                expected = ADJUST[name](expected, value)
        actual = method.augment_image()(IMAGE, np.random.default_rng(seed))
        assert actual.tobytes() == expected.tobytes()


def test_color_jitter_samples_orders_and_ranges():
    method = ColorJitter(brightness=0.4, contrast=0.0, saturation=0.2, hue=0.1)
    orders = set()
    values = {}
    for seed in range(400):
        steps = list(method.augment_image().sample(48, np.random.default_rng(seed)))
        orders.add(tuple(name for name, _ in steps))
        for name, value in steps:
            values.setdefault(name, []).append(value)
    assert len(orders) == 6
    assert values.keys() == {"brightness", "color", "hue"}
    for name, strength in (("brightness", 0.4), ("color", 0.2)):
        assert 1 - strength <= min(values[name]) < 1 - 0.95 * strength
        assert 1 + strength >= max(values[name]) > 1 + 0.95 * strength
    turns = {value if value < 128 else value - 256 for value in values["hue"]}
    assert turns == set(range(-25, 26))
