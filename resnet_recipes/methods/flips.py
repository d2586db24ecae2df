"""Vertical flips and 90-degree rotations, for images without a preferred orientation."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from resnet_recipes.augment import ImageAugment
from resnet_recipes.methods.base import Method
from resnet_recipes.methods.image_ops import RandomOps, SampledOp


@dataclass
class Flips(Method):
    """Flip and transpose images at random (Dieleman et al., 2015, arXiv:1503.07077).

    Half of the images are flipped vertically and, independently, half are transposed. With the
    loader's horizontal flips (data.flip), all eight symmetries of a square have the same
    probability. Without `turns`, only the four symmetries that do not transpose are used. Pixels
    are moved, never interpolated. The method runs on decoded images in the loader workers.
    """

    name = "flips"
    cost = "up to two operations per image, in the workers."
    gain = "not measured here."
    avoid_when = (
        "Images have a top and a bottom, as most photographs do. Satellite, tissue and "
        "circuit-board images do not."
    )
    vertical: bool = True  # flip half of the images vertically
    turns: bool = True  # transpose half of the images, which gives 90-degree rotations

    def augment_image(self) -> ImageAugment:
        return RandomOps(self._sample)

    def _sample(self, _: int, rng: np.random.Generator) -> Iterator[SampledOp]:
        flips, turns = rng.random(2) < 0.5
        if self.vertical and flips:
            yield SampledOp("flip_vertical", 0.0)
        if self.turns and turns:
            yield SampledOp("transpose", 0.0)
