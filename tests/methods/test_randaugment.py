"""RandAugment against its table of ranges."""

from collections import Counter

import numpy as np
import pytest
from PIL import Image

from resnet_recipes.methods.image_ops import IMAGE_OPS
from resnet_recipes.methods.randaugment import RandAugment
from tests.methods.inputs import make_now
from tests.shared.tables import parse_rows

#: Values that the settings must reject.
WRONG = {
    "depth": [0, 21],
    "severity": [0.0, 11.0],
    "augmentation_set": ["none"],
}


class ConstantGenerator:
    """A random generator whose uniform samples are all equal."""

    def __init__(self, value: float, sign: int = 1):
        self.value, self.sign = value, sign

    def random(self) -> float:
        return self.value

    def choice(self, _: tuple) -> int:
        return self.sign


def sample_operation(method: RandAugment, name: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.array([method.sample_value(name, 176, rng) for _ in range(10_000)])


@pytest.mark.parametrize(
    ("name", "weakest", "at_9", "at_10"),
    parse_rows(
        """
posterize | 4 | 1 | 1
rotate | 0 | 26 | 29
solarize | 254 | 26 | 1
shear_x | 0.003 | 0.27 | 0.3
shear_y | 0.003 | 0.27 | 0.3
translate_x | 0 | 52 | 58
translate_y | 0 | 52 | 58
"""
    ),
)
def test_randaugment_ranges_are_published_ranges(name, weakest, at_9, at_10):
    for severity, strongest in ((9, at_9), (10, at_10)):
        method = RandAugment(severity=severity)
        ends = (
            abs(method.sample_value(name, 176, ConstantGenerator(share)))
            for share in (0.0, 1 - 1e-9)
        )
        assert [*ends] == pytest.approx([float(weakest), float(strongest)], abs=1e-6)
        if name not in ("posterize", "solarize"):
            negative = method.sample_value(name, 176, ConstantGenerator(1 - 1e-9, -1))
            assert negative == pytest.approx(-float(strongest), abs=1e-6)


@pytest.mark.parametrize(
    ("severity", "low", "high"),
    [(10, 0.1, {"contrast": 10, "brightness": 7.5}), (9, 0.19, {"color": 9, "sharpness": 9})],
)
def test_randaugment_samples_half_of_enhancements_above_one(severity, low, high):
    for name, highest in high.items():
        factors = sample_operation(RandAugment(severity=severity), name)
        assert low <= factors.min() < low + 0.02
        assert highest - 0.02 < factors.max() <= highest
        # up to three quarters of a factor's range may be below one
        lighter = (severity - 1 / 0.75) / (severity - 1) if name == "brightness" else 1
        # five standard errors
        assert (factors > 1).mean() == pytest.approx(0.5 * lighter, abs=0.025)


def test_brightness_factor_above_one_is_reduced():
    factors = sample_operation(RandAugment(), "brightness")
    assert ((factors > 0.75) & (factors < 1)).any()
    original = sample_operation(RandAugment(augmentation_set="original"), "brightness")
    limits = original.min(), original.max()
    assert limits == (pytest.approx(0.118, abs=1e-3), pytest.approx(1.9, abs=1e-3))


@pytest.mark.parametrize(("augmentation_set", "operations"), [("all", 13), ("safe", 9)])
def test_randaugment_samples_operations_uniformly(augmentation_set, operations, monkeypatch):
    counts = Counter()
    for name in IMAGE_OPS:
        monkeypatch.setitem(
            IMAGE_OPS, name, lambda image, _, name=name: counts.update([name]) or image
        )
    augment = RandAugment(augmentation_set=augmentation_set).augment_image()
    image = Image.new("RGB", (1, 1))
    rng = make_now().rng
    for _ in range(500 * operations):
        augment(image, rng)
    assert len(counts) == operations
    assert all(abs(count - 500) < 110 for count in counts.values())  # five standard errors
    assert ("color" in counts) == (augmentation_set != "safe")
