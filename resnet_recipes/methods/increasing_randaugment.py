"""RandAugment as in timm: stronger with the magnitude, and each operation skipped half the time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from PIL import Image, ImageOps

from resnet_recipes.augment import ImageAugment
from resnet_recipes.base.limits import Bounds, OneOf, ZeroToOne
from resnet_recipes.methods.base import Method
from resnet_recipes.methods.image_ops import IMAGE_OPS, MOVING

#: ImageNet's mean color, which fills areas outside the image.
_FILL = (124, 116, 104)

_FILTERS = {
    "bilinear": (Image.Resampling.BILINEAR,),
    "bicubic": (Image.Resampling.BICUBIC,),
    "random": (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC),
}


@dataclass
class IncreasingRandAugment(Method):
    """Apply random operations as timm does (Cubuk et al., 2020, arXiv:1909.13719).

    This is the timm policy `rand-m7-mstd0.5-inc1`. It samples from 15 operations, uniformly and
    with replacement. Each is applied with probability `p` and a magnitude from N(magnitude,
    deviation), clipped to 0..10. Three operations have no strength; the others get stronger with
    the magnitude. Areas outside the image are filled with the ImageNet mean color. The method runs
    on decoded images in the loader workers.
    """

    name = "increasing_randaugment"
    cost = "about one Pillow operation for each image, in the workers."
    gain = (
        "part of A1 to A3 of timm, not measured separately (Wightman et al., 2021, "
        "arXiv:2110.00476)."
    )
    avoid_when = "The run is short, or the CPU limits the loader."
    group = "choose operations"
    depth: Annotated[int, Bounds(least=1, most=20)] = 2  # operations sampled for each image
    p: ZeroToOne = 0.5  # probability that a sampled operation is applied
    magnitude: Annotated[float, Bounds(least=0, most=10)] = 7.0  # mean strength, 0 to 10
    # standard deviation of the strength
    deviation: Annotated[float, Bounds(least=0, most=10)] = 0.5
    # filter for moved pixels: bilinear | bicubic | random (either, for each image)
    interpolation: Annotated[str, OneOf(*_FILTERS)] = "random"

    def augment_image(self) -> ImageAugment:
        return self.augment

    def augment(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        """Apply the operations to an image."""
        filters = _FILTERS[self.interpolation]
        for number in rng.integers(len(STRENGTHS), size=self.depth):
            acts = rng.random() < self.p
            level = rng.normal(self.magnitude, self.deviation)
            sign = 1 - 2 * int(rng.integers(2))
            resample = filters[rng.integers(len(filters))]
            if acts:
                level = sign * min(max(level, 0.0), 10.0) / 10
                image = apply(tuple(STRENGTHS)[number], image, level, resample)
        return image


#: The value of each operation, given a level from -1 to 1 and the image size along its axis.
STRENGTHS: dict[str, Callable[[float, int], float]] = {
    **dict.fromkeys(("autocontrast", "equalize", "invert"), lambda level, _: level),
    "rotate": lambda level, _: 30 * level,
    # Pillow rejects 0 bits, which would give a black image
    "posterize": lambda level, _: max(1, 4 - int(4 * abs(level))),
    "solarize": lambda level, _: 256 - int(256 * abs(level)),
    "solarize_add": lambda level, _: min(128, int(110 * abs(level))),
    **dict.fromkeys(
        ("color", "contrast", "brightness", "sharpness"),
        lambda level, _: max(0.1, 1 + 0.9 * level),
    ),
    **dict.fromkeys(("shear_x", "shear_y"), lambda level, _: 0.3 * level),
    **dict.fromkeys(("translate_x", "translate_y"), lambda level, size: 0.45 * level * size),
}

_OPS = IMAGE_OPS | {
    "invert": lambda image, _: ImageOps.invert(image),
    "solarize_add": lambda image, more: image.point(
        [min(255, value + more) if value < 128 else value for value in range(256)] * 3
    ),
}


def apply(name: str, image: Image.Image, level: float, resample: Image.Resampling) -> Image.Image:
    """Return an image after an operation at a level from -1 to 1."""
    size = image.height if name == "translate_y" else image.width
    value = STRENGTHS[name](level, size)
    return _OPS[name](image, value, *([resample, _FILL] if name in MOVING else []))
