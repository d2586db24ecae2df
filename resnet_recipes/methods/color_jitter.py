"""Random brightness, contrast, saturation and hue for every image."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from resnet_recipes.augment import ImageAugment
from resnet_recipes.base.limits import Bounds, ZeroToOne
from resnet_recipes.methods.base import Method
from resnet_recipes.methods.image_ops import RandomOps, SampledOp


@dataclass
class ColorJitter(Method):
    """Change brightness, contrast, saturation and hue (Howard, 2013, arXiv:1312.5402).

    The operations run in random order. Pixels match torchvision ColorJitter with the same factors.
    The factors are uniform in [1 - strength, 1 + strength]. The hue shifts by up to `hue` of a full
    turn. The method runs on decoded images in the loader workers.
    """

    name = "color_jitter"
    cost = "one operation per image for each setting above 0, in the workers."
    gain = "not measured here."
    avoid_when = (
        "Color distinguishes the classes, or another method already changes it: randaugment, "
        "increasing_randaugment or trivial_augment."
    )
    brightness: ZeroToOne = 0.4  # largest change of the factor
    contrast: ZeroToOne = 0.4  # largest change of the factor
    saturation: ZeroToOne = 0.4  # largest change of the factor
    # largest shift, as a fraction of a full turn
    hue: Annotated[float, Bounds(least=0, most=0.5)] = 0.0

    def augment_image(self) -> ImageAugment:
        return RandomOps(self._sample)

    def _sample(self, _: int, rng: np.random.Generator) -> Iterator[SampledOp]:
        operations = (
            ("brightness", self.brightness),
            ("contrast", self.contrast),
            ("color", self.saturation),
            ("hue", self.hue),
        )
        for number in rng.permutation(len(operations)):
            name, strength = operations[number]
            value = strength * rng.uniform(-1, 1)
            if strength:
                is_hue = name == "hue"
                yield SampledOp(name, float(int(255 * value) % 256) if is_hue else 1 + value)
