"""Random image operations of random strength, for every image."""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from resnet_recipes.augment import ImageAugment
from resnet_recipes.base.duration import Horizon
from resnet_recipes.base.errors import Note
from resnet_recipes.base.limits import Bounds, OneOf
from resnet_recipes.methods.base import Method
from resnet_recipes.methods.image_ops import ENHANCERS, RANDAUGMENT_OPS, RandomOps, SampledOp

_SAFE = tuple(name for name in RANDAUGMENT_OPS if name not in ENHANCERS)
#: Operations by value of `augmentation_set`.
SETS = {"all": RANDAUGMENT_OPS, "safe": _SAFE, "original": RANDAUGMENT_OPS}


@dataclass
class RandAugment(Method):
    """Apply random operations to each image (Cubuk et al., 2020, arXiv:1909.13719).

    This is Composer's variant. It samples from 13 operations, without the identity, uniformly and
    with replacement. Each operation has its own strength from U(0.1, severity). At severity 10,
    images are rotated by up to 29 degrees, sheared by up to 0.3, and translated by up to a third of
    their size. Posterize keeps 1 to 4 bits, and solarize uses thresholds from 1 to 254. The factor
    of color, contrast, brightness and sharpness does not depend on this strength. It is below or
    above 1 with equal probability, and uniform from 0.1 to 1 or from 1 to 10 (brightness: from 0.75
    to 7.5). With `original`, it is 0.18 times the strength plus 0.1. `safe` omits these four
    operations. The method runs on decoded images in the loader workers.
    """

    name = "randaugment"
    cost = (
        "18% of throughput at depth 1 and 28% at depth 2 in the workers of 8x A100 (MosaicML, "
        "Mosaic ResNet deep dive, Table 2)."
    )
    gain = (
        "+0.4 points for ResNet-50 at 90 epochs, +1.15 at 120 (depth 2, severity 9; Composer, "
        "method card). Without it, no run of the deep dive exceeded 79.87%."
    )
    avoid_when = (
        "The run is short. On top of blurpool, mixup and label_smoothing, Composer found no "
        "significant gain (method card)."
    )
    group = "choose operations"
    # operations applied to each image in turn
    depth: Annotated[int, Bounds(least=1, most=20)] = 1
    # largest strength, 0.1 to 10
    severity: Annotated[float, Bounds(least=0.1, most=10)] = 10.0
    augmentation_set: Annotated[str, OneOf(*SETS)] = "all"  # all | safe | original

    def advice(self, horizon: Horizon, full_size: int, others: Collection[str]) -> Iterator[Note]:
        if "stochastic_depth" in others and horizon.epochs < 180:
            better = "mild" if horizon.epochs < 60 else "medium"
            text = "the regularization of `hot` pays off in 180 epochs or more (79.9% on ImageNet)"
            yield Note(text, f"recipe={better}")

    def augment_image(self) -> ImageAugment:
        return RandomOps(self.sample)

    def sample(self, image_size: int, rng: np.random.Generator) -> Iterator[SampledOp]:
        """Sample the operations for an image `image_size` pixels wide, each with its value."""
        names = SETS[self.augmentation_set]
        for number in rng.integers(len(names), size=self.depth):
            yield SampledOp(names[number], self.sample_value(names[number], image_size, rng))

    def sample_value(self, name: str, image_size: int, rng: np.random.Generator) -> float:
        """Sample the value of an operation, in its unit, for an image `image_size` pixels wide."""
        level = 0.1 + (self.severity - 0.1) * rng.random()
        sign = float(rng.choice((-1, 1)))
        if name in ENHANCERS:
            return self._sample_factor(name, level, rng)
        return {
            "autocontrast": lambda: level,
            "equalize": lambda: level,
            "posterize": lambda: 4 - math.trunc(0.4 * level),  # bits to keep
            "rotate": lambda: sign * math.trunc(3 * level),  # degrees
            "solarize": lambda: 256 - math.trunc(25.6 * level),  # lowest value inverted
            "shear_x": lambda: sign * 0.03 * level,  # pixels per pixel
            "shear_y": lambda: sign * 0.03 * level,
            "translate_x": lambda: sign * math.trunc(level * image_size / 30),  # pixels
            "translate_y": lambda: sign * math.trunc(level * image_size / 30),
        }[name]()

    def _sample_factor(self, name: str, level: float, rng: np.random.Generator) -> float:
        """Sample a factor: 1 leaves the image unchanged, 0 removes the property completely."""
        if self.augmentation_set == "original":
            return 0.18 * level + 0.1
        strength = rng.random()
        more = rng.random() < 0.5
        factor = 1 + strength * (self.severity - 1 if more else -0.09 * self.severity)
        return 0.75 * factor if name == "brightness" and factor > 1 else factor
